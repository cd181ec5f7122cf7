package docs

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Who removes the operator first deletes what it keeps, by a loop over its definitions. What authors wrote must not be
// among it: nothing brings that back.
func TestRemovingLeavesWhatAuthorsWrote(t *testing.T) {
	want := []string{
		"applications.platform.operator.kibaship.com",
		"challengechecks.berg.norelect.ch",
		"challengeinstances.berg.norelect.ch",
		"challenges.apps.hexactf.io",
		"containernetworks.usvc-dev.developer.microsoft.com",
		"containernetworktunnelproxies.usvc-dev.developer.microsoft.com",
		"deployments.platform.operator.kibaship.com",
		"environments.quix.io",
		"projects.platform.operator.kibaship.com",
	}
	var withStatus []string
	for _, file := range glob(t, "config/*/crd/bases/*.yaml") {
		if strings.Contains(string(read(t, file)), "\n      status: {}") {
			group, plural, _ := strings.Cut(strings.TrimSuffix(path.Base(file), ".yaml"), "_")
			withStatus = append(withStatus, plural+"."+group)
		}
	}
	left := regexp.MustCompile(`grep -vE '([^']+)'\); do`)
	for _, file := range []string{"docs/olm.md", "docs/operations.md", "hack/make/deploy.mk"} {
		found := left.FindSubmatch(read(t, file))
		if found == nil {
			t.Errorf("%s: the loop over definitions leaves nothing out", file)
			continue
		}
		authored := regexp.MustCompile(string(found[1]))
		got := slices.DeleteFunc(slices.Clone(withStatus), authored.MatchString)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s deletes resources of\n%s\nwant\n%s", file, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}
