package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	operatorNamespace = "berg-operator-system"
	operatorUser      = "system:serviceaccount:" + operatorNamespace + ":berg-operator-controller-manager"
)

// use is what a request of the operator needed.
type use struct {
	Verb     string `json:"verb"`
	Group    string `json:"group,omitempty"`
	Resource string `json:"resource"` // <resource>[/<subresource>]
	// Own: in the operator's namespace. Name is noted there, and of resources of which the operator is granted one object.
	Own  bool   `json:"own,omitempty"`
	Name string `json:"name,omitempty"`
}

func (u use) String() string {
	text := u.Verb + " " + u.Resource
	if u.Group != "" {
		text += "." + u.Group
	}
	if u.Name != "" {
		text += " " + u.Name
	}
	if u.Own {
		text += " in the operator's namespace"
	}
	return text
}

// request is a use, and whether it was allowed.
type request struct {
	use       `json:",inline"`
	Forbidden bool `json:"forbidden,omitempty"`
}

// usage counts requests.
type usage map[request]int

// counted is usage as it is written.
type counted struct {
	request `json:",inline"`
	Times   int `json:"times"`
}

// MarshalJSON implements json.Marshaler: keys of JSON are texts.
func (u usage) MarshalJSON() ([]byte, error) {
	all := make([]counted, 0, len(u))
	for r, n := range u {
		all = append(all, counted{r, n})
	}
	slices.SortFunc(all, func(a, b counted) int { return strings.Compare(a.String(), b.String()) })
	return json.Marshal(all)
}

// UnmarshalJSON implements json.Unmarshaler.
func (u *usage) UnmarshalJSON(raw []byte) error {
	var all []counted
	if err := json.Unmarshal(raw, &all); err != nil {
		return err
	}
	*u = usage{}
	for _, c := range all {
		(*u)[c.request] += c.Times
	}
	return nil
}

func (u usage) requests() int {
	sum := 0
	for _, n := range u {
		sum += n
	}
	return sum
}

// entry is what the audit log tells of a request.
type entry struct {
	Stage        string `json:"stage"`
	Verb         string `json:"verb"`
	User         user   `json:"user"`
	Impersonated *user  `json:"impersonatedUser"`
	Object       *struct {
		Group       string `json:"apiGroup"`
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	Annotations map[string]string `json:"annotations"`
}

type user struct {
	Name string `json:"username"`
}

// addLog counts the requests in one file.
func (u usage) addLog(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := u.add(f); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func (u usage) add(log io.Reader) error {
	lines := bufio.NewReaderSize(log, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if !bytes.Contains(line, []byte(operatorUser)) {
			continue
		}
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			return err
		}
		if r, ok := e.request(); ok {
			u[r]++
		}
	}
}

// request returns what a request of the operator needed. Each has one entry that
// counts: of a watch that is broken off there is none but that of its beginning.
func (e entry) request() (request, bool) {
	who := e.User
	if e.Impersonated != nil {
		who = *e.Impersonated
	}
	if who.Name != operatorUser || e.Object == nil || e.Object.Resource == "" || e.byBinding() {
		return request{}, false
	}
	r := request{Forbidden: e.Annotations["authorization.k8s.io/decision"] == "forbid"}
	if begun := e.Stage == "ResponseStarted"; begun != (e.Verb == "watch" && !r.Forbidden) {
		return request{}, false
	}
	r.use = use{Verb: e.Verb, Group: e.Object.Group, Resource: e.Object.Resource}
	if e.Object.Subresource != "" {
		r.Resource += "/" + e.Object.Subresource
	}
	if e.Object.Namespace == operatorNamespace {
		r.Own, r.Name = true, e.Object.Name
	}
	// The operator is granted one object of these.
	if e.Object.Group == "admissionregistration.k8s.io" || e.Object.Resource == "daemonsets" || e.Object.Resource == "clusterroles" {
		r.Name = e.Object.Name
	}
	return r, true
}

// boundByItself are the ClusterRoles that the operator binds to itself, each in the namespaces
// where it has work: what it does there it is not granted in config. The one before the last
// lets every user ask for its own name. The last is the Role by which a spec plays OLM for an
// operator in a namespace of its own.
var boundByItself = []string{
	`ClusterRole "kibaship-project-admin"`, `ClusterRole "kibaship-tekton-integration"`, `ClusterRole "berg-operator-tunnel-network"`,
	`ClusterRole "berg-operator-berg-record-logs"`, `ClusterRole "berg-operator-berg-warm-pods"`,
	`ClusterRole "system:basic-user"`,
	` Role "berg-operator.v0.0.1"`,
}

// byBinding reports whether a request is one of those, or one that came a moment before the API
// server knew of the binding. What is missing for good there fails a test.
func (e entry) byBinding() bool {
	reason := e.Annotations["authorization.k8s.io/reason"]
	for _, role := range boundByItself {
		if strings.Contains(reason, role) {
			return true
		}
	}
	there := e.Object.Namespace == "tekton-pipelines" || strings.HasPrefix(e.Object.Namespace, "project-") && strings.HasSuffix(e.Object.Namespace, "-ns-kibaship-com") ||
		strings.HasPrefix(e.Object.Namespace, "challenge-") && e.Object.Subresource == "log"
	return there && e.Annotations["authorization.k8s.io/decision"] == "forbid"
}

// completeLogs returns the files of the audit log, once it holds all that was asked
// before now.
func completeLogs(ctx context.Context, kubeconfig string) ([]string, error) {
	folder := filepath.Join(filepath.Dir(filepath.Dir(kubeconfig)), "logs")
	marker := "rights-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	if out, err := exec.CommandContext(ctx, "kubectl", "--kubeconfig", kubeconfig, "get", "configmap", marker, "--ignore-not-found").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("ask the API server: %w\n%s", err, out)
	}
	var files []string
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		var err error
		if files, err = filepath.Glob(filepath.Join(folder, "audit*.log")); err != nil {
			return false, err
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return false, err
			}
			if bytes.Contains(text, []byte(marker)) {
				return true, nil
			}
		}
		return false, nil
	})
	if err != nil {
		return nil, fmt.Errorf("the audit log in %s does not show a request: was the cluster made with --audit? %w", folder, err)
	}
	return files, nil
}
