package docs

import (
	"regexp"
	"strings"
	"testing"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/command"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
	"github.com/bergctf/berg-operator/internal/berg/view"
)

// Each line that the live page offers to be copied is one that the plugin understands.
func TestThePluginUnderstandsTheLinesOfTheEvening(t *testing.T) {
	lines := map[string]bool{"kubectl berg plan --players 100 -n berg --weight web=3": true}
	for _, cause := range append([]bergv1.Cause{""}, bergv1.Causes...) {
		row := &view.Row{Namespace: "berg", Name: "one", Challenge: "web", State: view.Starting, Cause: cause}
		for _, remedy := range row.Remedies() {
			lines[remedy.Command] = true
		}
	}
	page := regexp.MustCompile(`\{\{[^}]*\}\}`).ReplaceAllString(string(read(t, "internal/platform/livepage/static/page.html")), "one")
	for _, line := range append(regexp.MustCompile(`kubectl berg [^<]+`).FindAllString(page, -1), inCode(string(read(t, "docs/live-page.md")))...) {
		lines[line] = true
	}
	if len(lines) < 10 {
		t.Errorf("only %d lines were found", len(lines))
	}
	for line := range lines {
		words := strings.Fields(line)[2:]
		root := command.New(&console.Console{}, "v0")
		found, rest, err := root.Find(words)
		if err != nil || found == root {
			t.Errorf("%s: %v", line, err)
			continue
		}
		if err := found.ParseFlags(rest); err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		if err := found.ValidateArgs(found.Flags().Args()); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// inCode are the lines of the plugin in a page's code, with their arguments.
func inCode(page string) (all []string) {
	for _, m := range regexp.MustCompile("`(kubectl berg [^`]+ [^`]+)`").FindAllStringSubmatch(page, -1) {
		all = append(all, m[1])
	}
	return all
}
