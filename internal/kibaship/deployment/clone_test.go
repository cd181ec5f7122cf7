package deployment

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
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

	for name, tc := range map[string]struct {
		commit, branch, context, dockerfile string
		want, file, text                    string
		problem                             string
	}{
		"the default branch":        {context: "app", want: second, file: "app/Dockerfile", text: "FROM two\n"},
		"a branch":                  {branch: "old", context: "app", want: first, file: "app/Dockerfile", text: "FROM one\n"},
		"a commit":                  {commit: first, branch: "main", context: "app", want: first, file: "app/Dockerfile", text: "FROM one\n"},
		"a branch that is not":      {branch: "gone", context: "app", problem: "gone"},
		"a directory that is not":   {context: "none", problem: "/none"},
		"no Dockerfile":             {context: "bare", problem: "BUILD_BASE_IMAGE"},
		"a Dockerfile that is made": {context: "bare", dockerfile: "FROM base\nRUN [\"a\",\"$(id)%s\"]\n", want: second, file: "bare/Dockerfile", text: "FROM base\nRUN [\"a\",\"$(id)%s\"]\n"},
		"one that is there stays":   {context: "app", dockerfile: "FROM made\n", want: second, file: "app/Dockerfile", text: "FROM two\n"},
	} {
		t.Run(name, func(t *testing.T) {
			source, results := t.TempDir(), t.TempDir()
			cmd := exec.Command("/bin/sh", "-c", strings.ReplaceAll(cloneScript, "/tmp/problem", filepath.Join(results, "stderr")))
			cmd.Env = []string{
				"PATH=" + os.Getenv("PATH"), "SOURCE=" + source, "CONTEXT=" + filepath.Join(source, "repository", tc.context), "URL=file://" + origin,
				"COMMIT=" + tc.commit, "BRANCH=" + tc.branch, "TOKEN_FILE=", "GIT_USER=x", "DOCKERFILE=" + tc.dockerfile,
				"RESULT=" + filepath.Join(results, "commit"), "PROBLEM=" + filepath.Join(results, "problem"),
			}
			out, err := cmd.CombinedOutput()
			if (err != nil) != (tc.problem != "") {
				t.Fatalf("%v: %s", err, out)
			}
			got, _ := os.ReadFile(filepath.Join(results, "commit"))
			if string(got) != tc.want {
				t.Errorf("commit %q, want %q", got, tc.want)
			}
			if tc.problem != "" {
				told, err := os.ReadFile(filepath.Join(results, "problem"))
				if err != nil || !strings.Contains(string(told), tc.problem) {
					t.Errorf("problem %q, %v", told, err)
				}
				return
			}
			if text, err := os.ReadFile(filepath.Join(source, "repository", tc.file)); err != nil || string(text) != tc.text {
				t.Errorf("%s: %q, %v", tc.file, text, err)
			}
		})
	}
}
