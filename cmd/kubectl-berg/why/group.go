package why

import (
	"slices"
	"strings"

	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
)

// Group is a number of instances with the same problem.
type Group struct {
	// First is the finding about the first of them.
	First Finding
	// Names are theirs, with the namespaces.
	Names []string
}

// Groups groups findings with the same text, problems first and then waiting instances. It leaves out instances without
// a problem.
func Groups(findings []Finding) []*Group {
	var groups []*Group
	byText := map[string]*Group{}
	for _, f := range findings {
		if f.Level == console.OK {
			continue
		}
		alike := strings.NewReplacer(f.Name, "NAME", f.Namespace, "NAMESPACE").Replace(f.Sentence)
		if byText[alike] == nil {
			byText[alike] = &Group{First: f}
			groups = append(groups, byText[alike])
		}
		g := byText[alike]
		g.Names = append(g.Names, f.Namespace+"/"+f.Name)
	}
	slices.SortStableFunc(groups, func(a, b *Group) int { return a.First.Level.Order() - b.First.Level.Order() })
	return groups
}
