package git_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bergctf/berg-operator/internal/kibaship/git"
	"github.com/bergctf/berg-operator/test/lib/gitrepo"
)

// reach returns the repository as an Application with its token reads it.
func reach(r *gitrepo.Repository) git.Repository {
	return git.Repository{URL: r.URL + "/team/web.git", User: "x-access-token", Token: r.Token, HTTP: &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func TestRefsAreThoseOfGit(t *testing.T) {
	r := gitrepo.New(t)
	r.Token = "secret"
	run := r.Git
	r.Commit("feature/login", "second")
	run("tag", "-a", "v1.0.0", "-m", "a tag with an object")
	run("tag", "v1.1.0", "main")
	run("push", "--quiet", "origin", "v1.0.0", "v1.1.0", "main:refs/pull/1/head")
	first, second := run("rev-parse", "main"), run("rev-parse", "feature/login")
	refs, err := reach(r).ListRefs(t.Context(), git.HEAD, git.Heads+"feature/", git.Tags+"v")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]git.Ref{}
	for _, ref := range refs {
		got[ref.Name] = ref
	}
	want := map[string]git.Ref{
		"refs/heads/main":          {Name: "refs/heads/main", Commit: first, Default: true},
		"refs/heads/feature/login": {Name: "refs/heads/feature/login", Commit: second},
		"refs/tags/v1.0.0":         {Name: "refs/tags/v1.0.0", Commit: second},
		"refs/tags/v1.1.0":         {Name: "refs/tags/v1.1.0", Commit: first},
	}
	if len(got) != len(want) {
		t.Errorf("refs are %v", refs)
	}
	for name, ref := range want {
		if got[name] != ref {
			t.Errorf("%s is %+v, want %+v", name, got[name], ref)
		}
	}
}

// A server that knows filters sends a commit alone; any server sends it first.
func TestMessagesAreReadWithAndWithoutFilters(t *testing.T) {
	for _, filters := range []string{"true", "false"} {
		t.Run(filters, func(t *testing.T) {
			r := gitrepo.New(t)
			run := r.Git
			if err := os.WriteFile(filepath.Join(run("rev-parse", "--show-toplevel"), "large"), []byte(strings.Repeat("text\n", 1<<16)), 0o600); err != nil {
				t.Fatal(err)
			}
			run("add", ".")
			run("commit", "--quiet", "-m", "docs: typing error\n\n[skip ci] nothing to build")
			run("push", "--quiet", "origin", "main")
			run("-C", r.Bare(), "config", "uploadpack.allowFilter", filters)
			message, err := reach(r).ReadMessage(t.Context(), run("rev-parse", "main"))
			if err != nil || message != "docs: typing error\n\n[skip ci] nothing to build\n" {
				t.Errorf("%q %v", message, err)
			}
		})
	}
}

func TestSkips(t *testing.T) {
	for message, want := range map[string]bool{
		"[skip ci] x": true, "x\n\n[ci skip]": true, "x [NO CI]": true, "x": false, "skip ci": false, "[skip cinema]": false,
	} {
		if git.Skips(message) != want {
			t.Errorf("%q: want %v", message, want)
		}
	}
}

func TestErrorsSayWhatToDoAndNothingOfTheAnswer(t *testing.T) {
	secret := "internal page with a password"
	for name, test := range map[string]struct {
		handler http.HandlerFunc
		want    string
		login   bool
	}{
		"wrong token": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, secret, http.StatusUnauthorized) }, "it wants another login", true},
		"no such":     {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, secret, http.StatusNotFound) }, "there is no such repository", true},
		"renamed": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/"+secret, http.StatusMovedPermanently)
		}, "another name now", false},
		"another page": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(secret)) }, "does not speak version 2", false},
		"said no":      {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("0025ERR " + secret + "\n")) }, "does not speak version 2", false},
		"ended early":  {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("003f")) }, "ended its answer early", false},
		"too often":    {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) }, "GIT_POLL_INTERVAL", false},
		"forbidden for a while": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "60")
			w.WriteHeader(http.StatusForbidden)
		}, "GIT_POLL_INTERVAL", false},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(test.handler)
			defer server.Close()
			r := git.Repository{URL: server.URL + "/team/web.git", Token: "t0ken", HTTP: &http.Client{
				Timeout: time.Minute, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			}}
			_, err := r.ListRefs(t.Context(), git.HEAD)
			var problem *git.Error
			if !errors.As(err, &problem) || !strings.Contains(err.Error(), test.want) || problem.Login != test.login {
				t.Errorf("%v", err)
			}
			if err != nil && (strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "t0ken")) {
				t.Errorf("%v repeats the answer or the token", err)
			}
		})
	}
}

func TestAServerSaysWhenToAskAgain(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	reset := fmt.Sprint(now.Add(10 * time.Minute).Unix())
	for name, test := range map[string]struct {
		status int
		header map[string]string
		want   time.Duration
	}{
		"in seconds":         {http.StatusTooManyRequests, map[string]string{"Retry-After": "90"}, 90 * time.Second},
		"at a time":          {http.StatusServiceUnavailable, map[string]string{"Retry-After": "Sun, 29 Nov 2026 12:01:00 GMT"}, time.Minute},
		"before now":         {http.StatusServiceUnavailable, map[string]string{"Retry-After": "Sun, 29 Nov 2026 11:01:00 GMT"}, time.Second},
		"GitHub":             {http.StatusForbidden, map[string]string{"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": reset}, 10 * time.Minute},
		"GitLab":             {http.StatusTooManyRequests, map[string]string{"RateLimit-Remaining": "0", "RateLimit-Reset": reset}, 10 * time.Minute},
		"requests are left":  {http.StatusForbidden, map[string]string{"X-RateLimit-Remaining": "7", "X-RateLimit-Reset": reset}, 0},
		"a day":              {http.StatusTooManyRequests, map[string]string{"Retry-After": "86400"}, time.Hour},
		"more than a number": {http.StatusTooManyRequests, map[string]string{"Retry-After": "99999999999999999999"}, 0},
		"less than nothing":  {http.StatusTooManyRequests, map[string]string{"Retry-After": "-5"}, time.Second},
		"at any time":        {http.StatusForbidden, map[string]string{"Retry-After": "0"}, time.Second},
		"a success":          {http.StatusOK, map[string]string{"Retry-After": "90"}, 0},
		"nothing":            {http.StatusTooManyRequests, nil, 0},
	} {
		answer := &http.Response{StatusCode: test.status, Header: http.Header{}}
		for key, value := range test.header {
			answer.Header.Set(key, value)
		}
		if got := git.RetryAfter(answer, now); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

// A server may send anything: no answer makes the reader fail otherwise than by an error.
func FuzzAnswers(f *testing.F) {
	f.Add([]byte("0014" + strings.Repeat("a", 16) + "0000"))
	f.Add([]byte("000dpackfile\n0011\x01PACK00000000\x90x0000"))
	f.Fuzz(func(t *testing.T, answer []byte) {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(answer) }))
		defer server.Close()
		r := git.Repository{URL: server.URL, HTTP: server.Client()}
		_, _ = r.ListRefs(t.Context(), git.HEAD)
		_, _ = r.ReadMessage(t.Context(), strings.Repeat("a", 40))
	})
}
