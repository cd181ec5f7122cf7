package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// focused is a command that runs specs of a suite by words of their names.
var focused = regexp.MustCompile(`(?s)\./(test/[a-z0-9/]+)[^\n]*?(?:\\\n[^\n]*?)?-ginkgo\.focus[= ]'([^']+)'`)

// placeholder is what CONTRIBUTING.md has the reader replace.
const placeholder = "words of your spec"

// A command that runs specs by their names finds some for each of its names: Ginkgo runs none and succeeds otherwise.
func TestCommandsRunSpecsThatExist(t *testing.T) {
	names := map[string][]string{}
	found := 0
	for _, file := range slices.Concat(glob(t, "hack/make/*.mk"), pages(t)) {
		for _, m := range focused.FindAllStringSubmatch(string(read(t, file)), -1) {
			suite, focus := m[1], m[2]
			if focus == placeholder {
				continue
			}
			found++
			if names[suite] == nil {
				names[suite] = specsOf(t, suite)
			}
			for _, one := range alternatives(focus) {
				if !slices.ContainsFunc(names[suite], regexp.MustCompile(one).MatchString) {
					t.Errorf("%s: no spec of %s has %q in its name", file, suite, one)
				}
			}
		}
	}
	if found < 10 {
		t.Errorf("only %d commands were found", found)
	}
}

// specsOf returns the names of the specs of a suite, each after those of what it is in.
func specsOf(t *testing.T, suite string) (names []string) {
	t.Helper()
	containers := []string{"Describe", "Context", "When", "It", "DescribeTable", "Entry"}
	var visit func(node ast.Node, within string)
	visit = func(node ast.Node, within string) {
		ast.Inspect(node, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) < 2 {
				return true
			}
			function, _ := call.Fun.(*ast.Ident)
			text, _ := call.Args[0].(*ast.BasicLit)
			if function == nil || text == nil || text.Kind != token.STRING || !slices.Contains(containers, function.Name) {
				return true
			}
			name, err := strconv.Unquote(text.Value)
			if err != nil {
				t.Fatal(err)
			}
			name = strings.TrimSpace(within + " " + name)
			names = append(names, name)
			for _, arg := range call.Args[1:] {
				visit(arg, name)
			}
			return false
		})
	}
	for _, path := range glob(t, suite+"/*_test.go") {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, path), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		visit(file, "")
	}
	return names
}

// alternatives returns the parts of a regular expression of which one must match.
func alternatives(expression string) (all []string) {
	depth, start := 0, 0
	for i, c := range expression {
		switch c {
		case '(':
			depth++
		case ')':
			depth--
		case '|':
			if depth == 0 {
				all, start = append(all, expression[start:i]), i+1
			}
		}
	}
	return append(all, expression[start:])
}
