package deployment

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func runGit(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+dir, "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// cloned is what the step has left: the source, its results, and what it printed.
type cloned struct {
	source string
	out    []byte
	err    error

	results string
}

// result is what the step says under a name, "" for nothing.
func (c cloned) result(name string) string {
	text, _ := os.ReadFile(filepath.Join(c.results, name))
	return string(text)
}

// runClone runs the step for a directory of a repository, with further variables.
func runClone(t *testing.T, url, dir string, env ...string) cloned {
	t.Helper()
	c := cloned{source: t.TempDir(), results: t.TempDir()}
	cmd := exec.Command("/bin/sh", "-c", strings.ReplaceAll(cloneScript, "/tmp/problem", filepath.Join(c.results, "stderr")))
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "SOURCE=" + c.source, "CONTEXT=" + filepath.Join(c.source, "repository", dir), "URL=" + url,
		"COMMIT=", "TAG=", "BRANCH=", "TOKEN_FILE=", "GIT_USER=x", "DOCKERFILE=", "DOCKERFILE_PATH=",
		"RESULT=" + filepath.Join(c.results, "commit"), "TIME=" + filepath.Join(c.results, "time"), "PROBLEM=" + filepath.Join(c.results, "problem"),
	}, env...)
	c.out, c.err = cmd.CombinedOutput()
	return c
}

// tokenFile holds a token, as the Secret of an Application does.
func tokenFile(t *testing.T, token string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// The step prints that the disk is full where it can report nothing.
func TestCloneOnAFullDisk(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip(err)
	}
	cmd := exec.Command("/bin/sh", "-c", strings.ReplaceAll(cloneScript, "/tmp/problem", "/dev/full"))
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "SOURCE=/dev/null", "PROBLEM=/dev/full"}
	out, err := cmd.CombinedOutput()
	if err == nil || adviseSpace(string(out)) == "" {
		t.Errorf("%v, %q", err, out)
	}
}

// TestClone runs what the first step of a run does.
func TestClone(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	origin := t.TempDir()
	runGit(t, origin, "init", "--quiet", "--initial-branch=main")
	write := func(file, text string) {
		t.Helper()
		path := filepath.Join(origin, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	commit := func() string {
		t.Helper()
		runGit(t, origin, "add", ".")
		runGit(t, origin, "commit", "--quiet", "--message=x")
		return runGit(t, origin, "rev-parse", "HEAD")
	}
	write("app/Dockerfile", "FROM one\n")
	first := commit()
	write("app/Dockerfile", "FROM two\n")
	write("bare/text", "x")
	second := commit()
	runGit(t, origin, "branch", "old", first)
	runGit(t, origin, "tag", "--annotate", "--message=x", "v1.0", first)

	library, large := t.TempDir(), t.TempDir()
	inDir := func(dir, file, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{library, large} {
		runGit(t, dir, "init", "--quiet", "--initial-branch=main")
	}
	inDir(library, "code", "the library\n")
	runGit(t, library, "add", ".")
	runGit(t, library, "commit", "--quiet", "--message=x")
	inDir(large, ".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n")
	const model = "what the file says"
	id := fmt.Sprintf("%x", sha256.Sum256([]byte(model)))
	inDir(large, "Dockerfile", "FROM one\n")
	point := func(id string) {
		t.Helper()
		inDir(large, "model.bin", fmt.Sprintf("version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize %d\n", id, len(model)))
		runGit(t, large, "-c", "filter.lfs.clean=cat", "-c", "filter.lfs.process=", "add", ".")
		runGit(t, large, "commit", "--quiet", "--message=x")
	}
	point(id)
	stored := runGit(t, large, "rev-parse", "HEAD")
	if err := os.MkdirAll(filepath.Join(large, ".git/lfs/objects", id[:2], id[2:4]), 0o755); err != nil {
		t.Fatal(err)
	}
	inDir(large, filepath.Join(".git/lfs/objects", id[:2], id[2:4], id), model)
	runGit(t, large, "checkout", "--quiet", "-b", "lost")
	point(strings.Repeat("0", 64))
	runGit(t, large, "checkout", "--quiet", "-b", "away")
	inDir(large, ".lfsconfig", "[lfs]\n\turl = http://127.0.0.1:1/none\n")
	point(id)
	runGit(t, origin, "checkout", "--quiet", "-b", "modules")
	runGit(t, origin, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", "file://"+library, "app/library")
	modules := commit()
	runGit(t, origin, "checkout", "--quiet", "-b", "no-module", "main")
	runGit(t, origin, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", "file://"+library, "app/library")
	runGit(t, origin, "config", "--file=.gitmodules", "submodule.app/library.url", "file://"+library+"-gone")
	commit()
	runGit(t, origin, "checkout", "--quiet", "main")

	for name, tc := range map[string]struct {
		commit, branch, context, dockerfile string
		tag, path, origin                   string
		want, file, text                    string
		problem                             string
		withLarge, withoutLarge             bool // with git-lfs, and without it
	}{
		"the default branch":        {context: "app", want: second, file: "app/Dockerfile", text: "FROM two\n"},
		"a branch":                  {branch: "old", context: "app", want: first, file: "app/Dockerfile", text: "FROM one\n"},
		"a commit":                  {commit: first, branch: "main", context: "app", want: first, file: "app/Dockerfile", text: "FROM one\n"},
		"a tag":                     {tag: "v1.0", context: "app", want: first, file: "app/Dockerfile", text: "FROM one\n"},
		"a tag that is not":         {tag: "v2.0", context: "app", problem: "v2.0"},
		"a submodule":               {branch: "modules", context: "app", want: modules, file: "app/library/code", text: "the library\n"},
		"a submodule that is not":   {branch: "no-module", context: "app", problem: "A submodule cannot be fetched"},
		"a file of Git LFS":         {origin: large, branch: "main", context: ".", withLarge: true, want: stored, file: "model.bin", text: model},
		"one that is lost":          {origin: large, branch: "lost", context: ".", withLarge: true, problem: "A file of Git LFS cannot be fetched"},
		"one whose server is away":  {origin: large, branch: "away", context: ".", withLarge: true, problem: "A file of Git LFS cannot be fetched"},
		"one without git-lfs":       {origin: large, branch: "main", context: ".", withoutLarge: true, problem: "BUILD_GIT_IMAGE has no git-lfs"},
		"another Dockerfile":        {context: "app", path: "none.Dockerfile", problem: "dockerfilePath"},
		"a Dockerfile by its path":  {context: ".", path: "bare/text", dockerfile: "FROM made\n", want: second, file: "bare/text", text: "x"},
		"a branch that is not":      {branch: "gone", context: "app", problem: "gone"},
		"a directory that is not":   {context: "none", problem: "/none"},
		"no Dockerfile":             {context: "bare", problem: "BUILD_BASE_IMAGE"},
		"a Dockerfile that is made": {context: "bare", dockerfile: "FROM base\nRUN [\"a\",\"$(id)%s\"]\n", want: second, file: "bare/Dockerfile", text: "FROM base\nRUN [\"a\",\"$(id)%s\"]\n"},
		"one that is there stays":   {context: "app", dockerfile: "FROM made\n", want: second, file: "app/Dockerfile", text: "FROM two\n"},
	} {
		t.Run(name, func(t *testing.T) {
			search := os.Getenv("PATH")
			if tc.withoutLarge {
				search = programs(t, "base64", "cat", "find", "git", "grep", "mkdir", "rm", "tail")
			}
			if tc.withLarge {
				if _, err := exec.LookPath("git-lfs"); err != nil {
					t.Skip("git-lfs is not installed")
				}
			}
			c := runClone(t, "file://"+cmp.Or(tc.origin, origin), tc.context, "PATH="+search, "GIT_ALLOW_PROTOCOL=file:http",
				"COMMIT="+tc.commit, "TAG="+tc.tag, "BRANCH="+tc.branch,
				"DOCKERFILE="+base64.StdEncoding.EncodeToString([]byte(tc.dockerfile)), "DOCKERFILE_PATH="+tc.path)
			if (c.err != nil) != (tc.problem != "") {
				t.Fatalf("%v: %s", c.err, c.out)
			}
			if got := c.result("commit"); got != tc.want {
				t.Errorf("commit %q, want %q", got, tc.want)
			}
			if tc.problem != "" {
				if reported := c.result("problem"); !strings.Contains(reported, tc.problem) {
					t.Errorf("problem %q", reported)
				}
				return
			}
			if text, err := os.ReadFile(filepath.Join(c.source, "repository", tc.file)); err != nil || string(text) != tc.text {
				t.Errorf("%s: %q, %v", tc.file, text, err)
			}
			if left := gitFiles(t, c.source); len(left) > 0 {
				t.Errorf("the context has what git keeps of itself: %v", left)
			}
			if want := runGit(t, cmp.Or(tc.origin, origin), "log", "-1", "--format=%ct", tc.want); c.result("time") != want {
				t.Errorf("time %q, want %q", c.result("time"), want)
			}
		})
	}
}

// gitFiles returns the files below a directory that git keeps of itself: also those of submodules.
func gitFiles(t *testing.T, dir string) (all []string) {
	t.Helper()
	if err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Name() == ".git" {
			all = append(all, path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// programs returns a folder that has these alone.
func programs(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestTheTokenIsForItsServerAlone has a git server send on to another one, which asks for a login.
func TestTheTokenIsForItsServerAlone(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	const token = "token-of-the-server"
	var given, taken atomic.Int32
	asks := func(got *atomic.Int32, then http.HandlerFunc) *httptest.Server {
		return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, password, _ := r.BasicAuth(); password == token {
				got.Add(1)
				then(w, r)
				return
			}
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
		}))
	}
	other := asks(&taken, http.NotFound)
	defer other.Close()
	known := asks(&given, http.NotFound)
	defer known.Close()
	sends := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL+r.URL.RequestURI(), http.StatusMovedPermanently)
	}))
	defer sends.Close()
	within := asks(&given, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/old/") {
			http.Redirect(w, r, "/new"+strings.TrimPrefix(r.URL.RequestURI(), "/old"), http.StatusMovedPermanently)
			return
		}
		http.NotFound(w, r)
	})
	defer within.Close()

	for name, tc := range map[string]struct {
		url         string
		gets, leaks int32
	}{
		"the server itself":           {known.URL + "/team/web.git", 1, 0},
		"another server":              {sends.URL + "/team/web.git", 0, 0},
		"another place of the server": {within.URL + "/old/team/web.git", 1, 0},
	} {
		given.Store(0)
		taken.Store(0)
		c := runClone(t, tc.url, ".", "BRANCH=main", "TOKEN_FILE="+tokenFile(t, token))
		if c.err == nil {
			t.Errorf("%s: there is nothing to clone: %s", name, c.out)
		}
		if given.Load() < tc.gets || taken.Load() != tc.leaks {
			t.Errorf("%s: its server got the token %d times, another one %d times: %s", name, given.Load(), taken.Load(), c.out)
		}
	}
}

// TestALoginThatIsMissing has a git server that asks for one.
func TestALoginThatIsMissing(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer server.Close()
	for name, tc := range map[string]struct{ token, want string }{
		"a private repository as a public one": {"", "asks for a login: the repository is private, or does not exist. Set spec.gitRepository.secretRef"},
		"a token that is refused":              {"wrong", "refuses the token in the Secret of spec.gitRepository.secretRef"},
	} {
		file := ""
		if tc.token != "" {
			file = tokenFile(t, tc.token)
		}
		c := runClone(t, server.URL+"/team/web.git", ".", "BRANCH=main", "TOKEN_FILE="+file)
		if c.err == nil {
			t.Errorf("%s: there is nothing to clone: %s", name, c.out)
		}
		if got := c.result("problem"); !strings.Contains(got, tc.want) {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// TestAGitServerThatHangs has servers that accept a connection and send nothing, or a byte from time to time.
func TestAGitServerThatHangs(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	for name, every := range map[string]time.Duration{"silent": time.Hour, "slow": 100 * time.Millisecond} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
			fmt.Fprint(w, "001e# service=git-upload-pack\n0000")
			for {
				w.(http.Flusher).Flush()
				select {
				case <-r.Context().Done():
					return
				case <-time.After(every):
					fmt.Fprint(w, "0")
				}
			}
		}))
		c := runClone(t, server.URL+"/team/web.git", ".", "BRANCH=main", "GIT_HTTP_LOW_SPEED_TIME=2")
		server.CloseClientConnections()
		server.Close()
		if want := "The git server " + server.URL + "/team/web.git does not answer, or sends too slowly"; c.err == nil || !strings.Contains(c.result("problem"), want) {
			t.Errorf("%s: %v: %s", name, c.err, c.result("problem"))
		}
	}
}
