package commitstatus

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
)

// state is how a build goes.
type state string

const (
	pending   state = "pending"
	success   state = "success"
	failure   state = "failure"
	cancelled state = "cancelled" // a newer commit is built in its place
)

// words are the states as providers call them.
var words = map[kibashipv1.GitProvider]map[state]string{
	kibashipv1.GitHub:    {pending: "pending", success: "success", failure: "failure", cancelled: "error"},
	kibashipv1.GitLab:    {pending: "pending", success: "success", failure: "failed", cancelled: "canceled"},
	kibashipv1.Bitbucket: {pending: "INPROGRESS", success: "SUCCESSFUL", failure: "FAILED", cancelled: "STOPPED"},
}

// commitState is the state of a commit, as it is sent.
type commitState struct {
	provider kibashipv1.GitProvider
	// base is the URL of the provider; public: at its public address.
	base   string
	public bool
	// repository is organization and name.
	repository, commit string
	// build names the build among others of the commit.
	build string
	state state
	token string
}

// requests returns the requests that send a state: the next one is for servers that do not know the one before.
func (s commitState) requests(ctx context.Context) (all []*http.Request, err error) {
	word := words[s.provider][s.state]
	add := func(address, header, token string, body any) {
		text, marshalErr := json.Marshal(body)
		q, requestErr := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(text))
		if marshalErr != nil || requestErr != nil {
			err = requestErr
			return
		}
		q.Header.Set("Content-Type", "application/json")
		q.Header.Set("User-Agent", "berg-operator")
		q.Header.Set(header, token)
		all = append(all, q)
	}
	switch s.provider {
	case kibashipv1.GitHub: // GitHub, GitHub Enterprise; Gitea and Forgejo
		apis := []string{s.base + "/api/v3", s.base + "/api/v1"}
		if s.public {
			apis = []string{"https://api.github.com"}
		}
		for _, api := range apis {
			add(api+"/repos/"+s.repository+"/statuses/"+s.commit, "Authorization", "token "+s.token, map[string]string{"state": word, "context": s.build})
		}
	case kibashipv1.GitLab:
		add(s.base+"/api/v4/projects/"+url.PathEscape(s.repository)+"/statuses/"+s.commit, "Private-Token", s.token, map[string]string{"state": word, "name": s.build})
	case kibashipv1.Bitbucket:
		body := map[string]string{"state": word, "key": s.build, "url": s.base + "/" + s.repository + "/commits/" + s.commit}
		address := s.base + "/rest/build-status/1.0/commits/" + s.commit // Bitbucket Data Center
		if s.public {
			address = "https://api.bitbucket.org/2.0/repositories/" + s.repository + "/commit/" + s.commit + "/statuses/build"
		}
		add(address, "Authorization", "Bearer "+s.token, body)
	}
	return all, err
}

// newBuildName names the builds of a Deployment. Providers accept at most 40 characters.
func newBuildName(deployment string) string {
	name := strings.TrimSuffix(deployment, "-kibaship-com")
	if _, slug, ok := strings.Cut(name, "-deployment-"); ok {
		name = slug
	}
	return "kibaship/" + name[:min(len(name), 30)]
}
