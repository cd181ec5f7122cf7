package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const backend = "/usr/lib/git-core/git-http-backend"

func git(t *testing.T, dir string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "GIT_TERMINAL_PROMPT=0", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com",
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestRepositories(t *testing.T) {
	if _, err := os.Stat(backend); err != nil {
		t.Skip("git of the distribution is not installed")
	}
	root := t.TempDir()
	for _, organization := range []string{"public", "private"} {
		work := t.TempDir()
		for _, args := range [][]string{
			{"init", "--quiet", "--initial-branch=main"},
			{"commit", "--quiet", "--allow-empty", "--message=first"},
			{"clone", "--quiet", "--bare", ".", filepath.Join(root, organization, "web.git")},
		} {
			if out, err := git(t, work, args...); err != nil {
				t.Fatalf("git %v: %v: %s", args, err, out)
			}
		}
	}
	server := httptest.NewServer(repositories(root, backend, []byte("secret")))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	for url, works := range map[string]bool{
		"http://" + host + "/public/web":                      true,
		"http://" + host + "/public/web.git":                  true,
		"http://" + host + "/private/web":                     false,
		"http://x:wrong@" + host + "/private/web":             false,
		"http://any-user:secret@" + host + "/private/web.git": true,
		"http://" + host + "/public/none":                     false,
	} {
		out, err := git(t, t.TempDir(), "clone", "--quiet", url, "copy")
		if (err == nil) != works {
			t.Errorf("clone %s: %v: %s", url, err, out)
		}
	}
	answer, err := http.Get(server.URL + "/private/../../etc/info/refs")
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusNotFound {
		t.Errorf("outside of the folder: %s", answer.Status)
	}
}
