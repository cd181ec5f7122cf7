package main

import (
	"crypto/sha256"
	"fmt"
	"io"
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

func TestLargeFiles(t *testing.T) {
	root, content := t.TempDir(), "a large file"
	id, none := fmt.Sprintf("%x", sha256.Sum256([]byte(content))), strings.Repeat("0", 64)
	dir := filepath.Join(root, "private", "web.git", "lfs", "objects", id[:2], id[2:4])
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, id), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewTLSServer(repositories(root, backend, []byte("secret")))
	defer server.Close()
	ask := func(method, path, body, password string) (status int, answer string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, server.URL+"/private/web.git/info/lfs/objects/"+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.SetBasicAuth("x", password)
		response, err := server.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(text)
	}
	batch := fmt.Sprintf(`{"operation":"download","objects":[{"oid":%q,"size":12},{"oid":%q,"size":1},{"oid":"../x","size":1}]}`, id, none)
	if status, answer := ask(http.MethodPost, "batch", batch, "wrong"); status != http.StatusUnauthorized {
		t.Errorf("with a wrong token: %d %s", status, answer)
	}
	status, answer := ask(http.MethodPost, "batch", batch, "secret")
	for _, want := range []string{`"href":"` + server.URL + "/private/web.git/info/lfs/objects/" + id + `"`, `"code":404`, `"code":422`} {
		if status != http.StatusOK || !strings.Contains(answer, want) {
			t.Errorf("%d %s, want %s", status, answer, want)
		}
	}
	if status, answer := ask(http.MethodGet, id, "", "secret"); status != http.StatusOK || answer != content {
		t.Errorf("the file: %d %s", status, answer)
	}
	if status, answer := ask(http.MethodGet, id, "", "wrong"); status != http.StatusUnauthorized {
		t.Errorf("the file with a wrong token: %d %s", status, answer)
	}
	if status, answer := ask(http.MethodPost, "batch", `{"operation":"upload","objects":[]}`, "secret"); status != http.StatusUnprocessableEntity {
		t.Errorf("an upload: %d %s", status, answer)
	}
}
