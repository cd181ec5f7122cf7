package poll

import (
	"fmt"
	"slices"
	"testing"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kibaship/git"
)

func TestRulesChooseBranchesAndTheHighestTag(t *testing.T) {
	refs := []git.Ref{{Name: "refs/heads/main", Commit: "1", Default: true}}
	for _, name := range []string{
		"refs/heads/main", "refs/heads/release/1", "refs/heads/release/1/fix", "refs/heads/-option", "refs/heads/a$(b)", "refs/pull/7/head",
		"refs/merge-requests/7/head", "refs/tags/v1.9.0", "refs/tags/v1.10.0", "refs/tags/v2.0.0-rc.1", "refs/tags/v2.0.0", "refs/tags/nightly", "refs/tags/w3",
	} {
		refs = append(refs, git.Ref{Name: name, Commit: "1"})
	}
	for name, test := range map[string]struct {
		rule Rule
		want []string
	}{
		"the default branch": {Rule{}, []string{"refs/heads/main"}},
		"a branch":           {Rule{Branches: []string{"release/1"}}, []string{"refs/heads/release/1"}},
		"a pattern":          {Rule{Branches: []string{"release/*", "main"}}, []string{"refs/heads/main", "refs/heads/release/1"}},
		"all":                {Rule{Branches: []string{"*"}}, []string{"refs/heads/main"}},
		"pull requests":      {Rule{Branches: []string{"../pull/7/head", "pull/*", "refs/pull/7/head", "7/head"}}, nil},
		"the highest tag":    {Rule{Tags: []string{"v*"}}, []string{"refs/tags/v2.0.0"}},
		"within a series":    {Rule{Branches: []string{"main"}, Tags: []string{"v1.*"}}, []string{"refs/heads/main", "refs/tags/v1.10.0"}},
		"no version":         {Rule{Tags: []string{"nightly"}}, []string{"refs/tags/nightly"}},
		"before a release":   {Rule{Tags: []string{"v2.0.0-*", "v1*"}}, []string{"refs/tags/v2.0.0-rc.1"}},
	} {
		t.Run(name, func(t *testing.T) {
			chosen, _ := test.rule.choose(refs)
			var got []string
			for _, ref := range chosen {
				got = append(got, ref.Name)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

func TestBranchesAreBounded(t *testing.T) {
	var refs []git.Ref
	for n := range 300 {
		refs = append(refs, git.Ref{Name: fmt.Sprintf("refs/heads/b%03d", n)})
	}
	chosen, branches := Rule{Branches: []string{"b*"}}.choose(refs)
	if len(chosen) != kibashipv1.MaxBranches || branches != 300 || chosen[0].Name != "refs/heads/b000" {
		t.Errorf("%d of %d, from %s", len(chosen), branches, chosen[0].Name)
	}
}

func TestTheServerIsAskedForPrefixesAlone(t *testing.T) {
	got := Rule{Branches: []string{"main", "release/*", "[ab]c"}, Tags: []string{"v?.0"}}.prefixes()
	want := []string{"refs/heads/main", "refs/heads/release/", "refs/heads/", "refs/tags/v"}
	if !slices.Equal(got, want) || !slices.Equal(Rule{}.prefixes(), []string{git.HEAD}) {
		t.Errorf("%q %q", got, Rule{}.prefixes())
	}
}
