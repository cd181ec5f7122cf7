package deployment

import (
	"strings"
	"testing"

	"github.com/bergctf/berg-operator/internal/kibaship/registry"
)

func TestLastLinesOfABuild(t *testing.T) {
	for name, tc := range map[string]struct{ log, want string }{
		"an error of a command": {
			"\x1b[36mINFO\x1b[0m[0001] Running: [/bin/sh -c npm ci]\n\x1b[31mERROR: cannot find module left-pad\x1b[0m\n" +
				"error building image: error building stage: failed to execute command: waiting for process to exit: exit status 3\n",
			"ERROR: cannot find module left-pad",
		},
		"an error of the builder": {
			"\x1b[36mINFO\x1b[0m[0000] Retrieving image manifest private/base\nerror building image: GET https://r.example.org/v2/base: UNAUTHORIZED: authentication required\n",
			"error building image: GET https://r.example.org/v2/base: UNAUTHORIZED: authentication required",
		},
		"another format":          {"time=\"2026-01-01T00:00:00Z\" level=info msg=x\nmake: *** [all] Error 2\n", "make: *** [all] Error 2"},
		"a fatal error":           {"FATA[0003] no space left\n", "no space left"},
		"the last five":           {"1\n2\n3\n\n4\n5\n6\n", "2 | 3 | 4 | 5 | 6"},
		"a bar of progress":       {"10 %\r50 %\rfailed\r\n", "failed"},
		"what is not seen":        {"a\u202eb\x00c\x1b]0;title\x07d\te\xff\n", "abcd e�"},
		"a password in a URL":     {"cloning https://user:hunter2@git.example.org/x\n", "cloning https://…@git.example.org/x"},
		"a header":                {"Authorization: Bearer abc.def\n", "Authorization: Bearer …"},
		"a token":                 {"using ghp_0123456789abcdefghij now\n", "using … now"},
		"nothing but the builder": {"INFO[0001] x\nWARN[0002] y\n", ""},
		"nothing":                 {"", ""},
		"one line of any length":  {strings.Repeat("é", 10000) + "end\n", "…" + strings.Repeat("é", maxLogShown-3) + "end"},
	} {
		if got := summarize(tc.log); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// The commands of a Dockerfile can print the login of the pull Secret in several forms.
func TestLoginsAreNoPartOfTheLastLines(t *testing.T) {
	const content = `{"auths":{"r.example.org":{"username":"builder","password":"hunter2"},"s.example.org":{"identitytoken":"hunter2-long","auth":""}}}`
	logins, err := registry.ParseLogins([]byte(content))
	if err != nil {
		t.Fatal(err)
	}
	log := content + "\nYnVpbGRlcjpodW50ZXIy aHVudGVyMg== hunter2 hunter2-long\n"
	if got := summarize(logins.Remove(log)); strings.Contains(got, "hunter2") || strings.Contains(got, "-long") || strings.Contains(got, "YnVp") || strings.Contains(got, "aHVu") {
		t.Error(got)
	}
}

// A step on a full disk can write no report, while the node still keeps its log.
func TestAStepThatReportedNothingIsDescribedByItsLog(t *testing.T) {
	const log = "kubectl logs -n ns pod -c step shows more"
	for name, tc := range map[string]struct{ step, lines, want string }{
		"no log":          {stepPush, "", ": " + log},
		"commands":        {stepBuild, "make: *** [all] Error 2", `. The last lines, which the author of the repository may have written: "make: *** [all] Error 2". ` + log},
		"git":             {stepClone, "fatal: x", `. The last lines, which the author of the repository may have written: "fatal: x". ` + log},
		"our own program": {stepPush, "panic: x", `. The last lines: "panic: x". ` + log},
		"a full disk": {
			stepPush, "write layer: no space left on device",
			`. The last lines: "write layer: no space left on device". The disk of the node, or the volume, is full: free space on the node, make the build smaller, or raise BUILD_STORAGE_SIZE. ` + log,
		},
	} {
		if got := (failedStep{Pod: "pod", Container: "step", Step: tc.step}).describe("ns", tc.lines); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
