package poll

import (
	"cmp"
	"path"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kibaship/git"
)

// Rule says which branches and tags are built, as patterns of path.Match. Without any it is the default branch.
type Rule struct {
	Branches, Tags []string
}

// NewRule returns the rule of an Application.
func NewRule(source *kibashipv1.GitRepository) Rule {
	rule := Rule{Branches: source.AutoBuild.Branches, Tags: source.AutoBuild.Tags}
	if rule.empty() && source.Branch != "" {
		rule.Branches = []string{source.Branch}
	}
	return rule
}

func (r Rule) empty() bool { return len(r.Branches)+len(r.Tags) == 0 }

// prefixes are the beginnings of all refs that can match. A pattern counts up to its first special character, so a server may
// return refs that do not match. choose drops them.
func (r Rule) prefixes() (all []string) {
	if r.empty() {
		return []string{git.HEAD}
	}
	for _, p := range []struct {
		prefix   string
		patterns []string
	}{{git.Heads, r.Branches}, {git.Tags, r.Tags}} {
		for _, pattern := range p.patterns {
			all = append(all, p.prefix+pattern[:strings.IndexAny(pattern+"*", "*?[")])
		}
	}
	return all
}

// branchName is what a Deployment accepts as a branch, and short enough for an annotation.
var branchName = regexp.MustCompile(`^[a-zA-Z0-9_][a-zA-Z0-9._/+@#-]{0,199}$`)

// choose returns the branches to build, sorted by name and not more than MaxBranches, and the tag to build; and how many branches match.
func (r Rule) choose(refs []git.Ref) (chosen []git.Ref, branches int) {
	var tag *git.Ref
	for _, ref := range refs {
		branch, isBranch := strings.CutPrefix(ref.Name, git.Heads)
		name, isTag := strings.CutPrefix(ref.Name, git.Tags)
		switch {
		case isBranch && branchName.MatchString(branch) && (r.empty() && ref.Default || matches(r.Branches, branch)):
			if !slices.ContainsFunc(chosen, func(other git.Ref) bool { return other.Name == ref.Name }) { // HEAD and its branch are two
				chosen = append(chosen, git.Ref{Name: ref.Name, Commit: ref.Commit})
			}
		case isTag && branchName.MatchString(name) && matches(r.Tags, name):
			if tag == nil || compareVersions(strings.TrimPrefix(tag.Name, git.Tags), name) < 0 {
				tag = &ref
			}
		}
	}
	slices.SortFunc(chosen, func(a, b git.Ref) int { return cmp.Compare(a.Name, b.Name) })
	branches = len(chosen)
	chosen = chosen[:min(branches, kibashipv1.MaxBranches)]
	if tag != nil {
		chosen = append(chosen, *tag)
	}
	return chosen, branches
}

func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		ok, err := path.Match(pattern, name)
		return ok && err == nil
	})
}

// compareVersions compares the versions in two tags, such as v1.10.0 and v1.9. A tag without a version is the lowest. The order
// is total, so that the same tags always give the same choice.
func compareVersions(a, b string) int {
	x, y := parseVersion(a), parseVersion(b)
	switch {
	case x == nil || y == nil:
		return cmp.Or(cmp.Compare(btoi(x != nil), btoi(y != nil)), cmp.Compare(a, b))
	case x.LessThan(y):
		return -1
	case y.LessThan(x):
		return 1
	default:
		return cmp.Compare(a, b)
	}
}

func parseVersion(tag string) *version.Version {
	tag = strings.TrimLeftFunc(tag, func(r rune) bool { return r < '0' || r > '9' })
	if v, err := version.ParseSemantic(tag); err == nil {
		return v
	}
	v, _ := version.ParseGeneric(tag) // nil with an error
	return v
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
