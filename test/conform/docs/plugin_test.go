package docs

import (
	"html"
	"regexp"
	"strings"
	"testing"

	"github.com/bergctf/berg-operator/cmd/berg-operator/families"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/doctor"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/operator"
)

const pluginPage = "docs/kubectl-berg.md"

// The plugin knows the defaults of settings that the operator's Deployment may leave out.
func TestThePluginKnowsTheOperatorsDefaults(t *testing.T) {
	known := map[string]string{}
	for _, section := range operator.Sections(new(config.Process), families.All()) {
		for _, s := range section.Settings {
			known[s.Name] = s.Default
		}
	}
	for name, value := range doctor.Defaults {
		if byDefault, exists := known[name]; !exists || byDefault != value {
			t.Errorf("%s: the plugin takes %q for its default, it is %q", name, value, byDefault)
		}
	}
}

// What the program says today is in its recordings: make plugin-recordings makes them anew.
func TestRecordingsShowWhatThePluginSays(t *testing.T) {
	tag := regexp.MustCompile(`<[^>]*>`)
	for file, phrases := range map[string][]string{
		"try": {"the Challenge can be run", "its pods are ordered", "namespace 0.", "Ctrl-C", "it is gone, and nothing is left of it"},
		"why": {"cannot be pulled", "PodsReady:", "players are told: ImageUnavailable", "its start: namespace"},
	} {
		text := html.UnescapeString(tag.ReplaceAllString(string(read(t, "docs/kubectl-berg/"+file+".svg")), ""))
		for _, phrase := range phrases {
			if !strings.Contains(text, phrase) {
				t.Errorf("the recording of %s does not show %q", file, phrase)
			}
		}
	}
}

func TestEveryExitCodeIsExplained(t *testing.T) {
	rows := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\| (\d+) \|`).FindAllStringSubmatch(sectionOf(t, string(read(t, pluginPage)), "Exit codes"), -1) {
		rows[m[1]] = true
	}
	for code, number := range map[int]string{
		console.ExitOK: "0", console.ExitFailed: "1", console.ExitUsage: "2", console.ExitNotFound: "3", console.ExitProblem: "4",
		console.ExitTimeout: "5", console.ExitPartly: "6", console.ExitForbidden: "7", console.ExitUnreachable: "8", console.ExitInterrupted: "130",
	} {
		if !rows[number] {
			t.Errorf("%s: exit code %d is not explained", pluginPage, code)
		}
		delete(rows, number)
	}
	for number := range rows {
		t.Errorf("%s: there is no exit code %s", pluginPage, number)
	}
}
