package command

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
)

// A mistake in the command line ends with its exit code, and the error says how the command is used.
func TestMistakesInTheCommandLine(t *testing.T) {
	for line, want := range map[string]string{
		"lst":                          "see kubectl berg --help",
		"rollout":                      "wrong number of arguments: 0. Use: kubectl berg rollout CHALLENGE",
		"freeze guestbook":             "wrong number of arguments: 1. Use: kubectl berg freeze",
		"connect":                      "Use: kubectl berg connect NAME [SERVICE]",
		"plan":                         "see kubectl berg plan --help",
		"list --colour":                "see kubectl berg list --help",
		"list -o xml":                  "-o xml: must be json, yaml, wide or name",
		"lint -o xml -f challenge.yml": "-o xml: must be json, yaml, sarif, wide or name",
		"completion tcsh":              "see kubectl berg completion --help",
		"version now":                  "see kubectl berg version --help",
	} {
		err := execute(t, strings.Fields(line)...)
		if console.Code(err) != console.ExitUsage || !strings.Contains(err.Error(), want) {
			t.Errorf("kubectl berg %s: code %d, %v: want %q", line, console.Code(err), err, want)
		}
	}
	for _, line := range []string{"completion", "completion bash", "version", "help extend"} {
		if err := execute(t, strings.Fields(line)...); err != nil {
			t.Errorf("kubectl berg %s: %v", line, err)
		}
	}
}

// Commands that read files end when the program is asked to, although standard input never does.
func TestCommandsThatReadEndWithTheProgram(t *testing.T) {
	for _, line := range []string{"import -", "lint -f -", "plan -f - --players 5"} {
		in, closeIn := io.Pipe()
		var out bytes.Buffer
		c := New(console.New(in, &out, &out, func(string) string { return "" }), "v0.0.0")
		c.SetArgs(strings.Fields(line))
		ctx, cancel := context.WithCancel(t.Context())
		go cancel()
		if err := usageError(c.ExecuteContextC(ctx)); console.Code(err) != console.ExitInterrupted {
			t.Errorf("kubectl berg %s: code %d, %v", line, console.Code(err), err)
		}
		_ = closeIn.Close()
	}
}

// lint names links that lead out of a folder, and reads the other files.
func TestLintStaysInItsFolder(t *testing.T) {
	folder := t.TempDir()
	outside := filepath.Join(t.TempDir(), "secret.yaml")
	for name, content := range map[string]string{outside: "apiVersion: berg.norelect.ch/v1\nkind: Challenge\nspec: {flagg: private}\n", filepath.Join(folder, "a.yaml"): "kind: Other\n"} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(folder, "link.yaml")); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	c := New(console.New(&out, &out, &out, func(string) string { return "" }), "v0.0.0")
	c.SetArgs([]string{"lint", "-f", folder})
	err := usageError(c.ExecuteContextC(t.Context()))
	if console.Code(err) != console.ExitNotFound || !strings.Contains(out.String(), "link.yaml is not read: it is outside of "+folder) || strings.Contains(out.String(), "private") {
		t.Errorf("code %d, %v\n%s", console.Code(err), err, out.String())
	}
}

func TestTheFlagOfATryBreaksCarelessScripts(t *testing.T) {
	for format, start := range map[string]string{"": "flag{try_", "berg{...}": "berg{try_"} {
		if flag := randomFlag(format); !strings.HasPrefix(flag, start) || !strings.Contains(flag, "&") || !strings.Contains(flag, "/") || len(flag) < 36 {
			t.Errorf("%q: %s", format, flag)
		}
	}
}

func execute(t *testing.T, args ...string) error {
	t.Helper()
	var out bytes.Buffer
	c := New(console.New(&out, &out, &out, func(string) string { return "" }), "v0.0.0")
	c.SetArgs(args)
	return usageError(c.ExecuteContextC(t.Context()))
}
