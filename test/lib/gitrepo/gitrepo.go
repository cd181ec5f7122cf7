// Package gitrepo serves a git repository on this machine, by the git of the distribution. The operator's programs know none.
package gitrepo

import (
	"context"
	"io"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

const backend = "/usr/lib/git-core/git-http-backend"

// apiPath is where providers take the states of commits.
const apiPath = "/api/"

// Repository is a repository of one organization and name, at URL/team/web.git, and a clone of it. The server takes states of commits, too.
type Repository struct {
	// URL of the server.
	URL string
	// Token is what clients need. Empty: the repository is public.
	Token string

	test   test
	bare   string
	clone  string
	asked  atomic.Int32
	silent atomic.Pointer[silence]

	mu     sync.Mutex
	states []string
}

// silence has requests wait whose path has a prefix.
type silence struct {
	prefix string
	ended  chan struct{}
}

// test is a test of Go or Ginkgo.
type test interface {
	Helper()
	TempDir() string
	Cleanup(func())
	Context() context.Context
	Fatalf(string, ...any)
}

// New makes a repository with one commit on the branch main, and serves it until the test ends.
func New(t test) *Repository {
	t.Helper()
	root := t.TempDir()
	r := &Repository{test: t, bare: filepath.Join(root, "team", "web.git"), clone: filepath.Join(t.TempDir(), "clone")}
	r.run(root, "init", "--quiet", "--bare", "--initial-branch=main", r.bare)
	r.run(root, "clone", "--quiet", r.bare, r.clone)
	r.Git("checkout", "--quiet", "-b", "main")
	r.Commit("main", "first")
	handler := &cgi.Handler{Path: backend, Env: []string{
		"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*",
	}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		state := strings.HasPrefix(q.URL.Path, apiPath)
		if state {
			body, _ := io.ReadAll(io.LimitReader(q.Body, 1<<16))
			r.mu.Lock()
			r.states = append(r.states, q.URL.Path+" "+string(body))
			r.mu.Unlock()
		} else {
			r.asked.Add(1)
		}
		if silent := r.silent.Load(); silent != nil && strings.HasPrefix(q.URL.Path, silent.prefix) {
			<-silent.ended
		}
		if state {
			w.WriteHeader(http.StatusCreated)
			return
		}
		if _, password, _ := q.BasicAuth(); r.Token != "" && password != r.Token {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		handler.ServeHTTP(w, q)
	}))
	t.Cleanup(server.Close)
	r.URL = server.URL
	return r
}

// Bare is the directory of the repository.
func (r *Repository) Bare() string { return r.bare }

// Asked is how many requests of git the server has had.
func (r *Repository) Asked() int { return int(r.asked.Load()) }

// States are the paths and bodies of all states of commits that the server was sent.
func (r *Repository) States() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.states)
}

// Git runs git in the clone, and returns what it prints.
func (r *Repository) Git(args ...string) string {
	r.test.Helper()
	return r.run(r.clone, args...)
}

// Commit makes an empty commit on a branch, pushes it, and returns its SHA. A new branch begins at main.
func (r *Repository) Commit(branch, message string) string {
	r.test.Helper()
	if r.Git("branch", "--list", branch) == "" && branch != "main" {
		r.Git("branch", branch, "main")
	}
	if branch != "main" || r.Git("branch", "--list", "main") != "" {
		r.Git("checkout", "--quiet", branch)
	}
	r.Git("commit", "--quiet", "--allow-empty", "-m", message)
	r.Git("push", "--quiet", "--force", "origin", branch)
	return r.Git("rev-parse", branch)
}

// Silence has the server answer no request whose path has a prefix until speak is called.
func (r *Repository) Silence(prefix string) (speak func()) {
	silent := &silence{prefix, make(chan struct{})}
	r.silent.Store(silent)
	speak = sync.OnceFunc(func() {
		r.silent.CompareAndSwap(silent, nil)
		close(silent.ended)
	})
	r.test.Cleanup(speak)
	return speak
}

func (r *Repository) run(dir string, args ...string) string {
	r.test.Helper()
	cmd := exec.CommandContext(r.test.Context(), "git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org")
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.test.Fatalf("git %q: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}
