package command

import (
	"bytes"
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

func execute(t *testing.T, args ...string) error {
	t.Helper()
	var out bytes.Buffer
	c := New(console.New(&out, &out, &out, func(string) string { return "" }), "v0.0.0")
	c.SetArgs(args)
	return usageError(c.ExecuteContextC(t.Context()))
}
