package docs

import (
	"regexp"
	"strings"
	"testing"

	"github.com/bergctf/berg-operator/cmd/kubectl-berg/command"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
)

const pluginPage = "docs/kubectl-berg.md"

// The examples of output have the present messages of the plugin.
func TestExamplesHavePresentMessages(t *testing.T) {
	for section, phrases := range map[string][]string{
		"try": {"Starting instance", "deployments created", "namespace 0.", "Press Ctrl-C", "the instance and all its objects are deleted"},
		"why": {"cannot be pulled", "PodsReady:", "shown to players: ImageUnavailable", "start: namespace"},
	} {
		_, text, _ := strings.Cut(sectionOf(t, string(read(t, pluginPage)), "Commands"), "\n### "+section+"\n")
		text, _, _ = strings.Cut(text, "\n### ")
		for _, phrase := range phrases {
			if !strings.Contains(text, phrase) {
				t.Errorf("section %s of %s does not show %q", section, pluginPage, phrase)
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

// docs/kubectl-berg.md promises examples of each command. They are lines that the plugin understands.
func TestEveryCommandShowsExamples(t *testing.T) {
	shown := 0
	for _, c := range command.New(&console.Console{}, "v0.0.0").Commands() {
		if c.GroupID == "" { // help, completion and version
			continue
		}
		if c.Example == "" {
			t.Errorf("kubectl berg %s --help shows no example", c.Name())
		}
		for _, line := range typed("```sh\n" + c.Example + "\n```") {
			_, rest, ok := strings.Cut(line, "kubectl berg ")
			if !ok {
				continue
			}
			shown++
			words := strings.Fields(rest)
			found, _, err := command.New(&console.Console{}, "v0.0.0").Find(words)
			if err != nil || found.Name() != c.Name() {
				t.Errorf("kubectl berg %s --help shows %q", c.Name(), line)
				continue
			}
			for _, word := range words[1:] {
				name, _, _ := strings.Cut(word, "=")
				if !optionExists(found.Flags(), name) && !optionExists(found.InheritedFlags(), name) {
					t.Errorf("%q: there is no option %s", line, name)
				}
			}
		}
	}
	if shown < 30 {
		t.Errorf("only %d examples were found", shown)
	}
}

func TestEveryCommandIsInTheTable(t *testing.T) {
	table := sectionOf(t, string(read(t, pluginPage)), "Commands")
	commands := 0
	for _, c := range command.New(&console.Console{}, "v0.0.0").Commands() {
		if c.GroupID == "" { // help, completion and version
			continue
		}
		commands++
		if !regexp.MustCompile(`kubectl berg ` + c.Name() + `\b`).MatchString(table) {
			t.Errorf("%s: the table of commands has no kubectl berg %s", pluginPage, c.Name())
		}
	}
	if commands < 15 {
		t.Fatalf("only %d commands were found", commands)
	}
}
