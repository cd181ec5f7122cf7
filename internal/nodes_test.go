package internal_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// One function says whether a node takes instances, so that doctor, status, plan, the live page, the pull of images and the operator name the
// same nodes of a cluster. Others may copy a taint into a cache, or show that a node is cordoned, but decide nothing by them.
func TestOnePackageDecidesWhichNodesTakeInstances(t *testing.T) {
	copies := map[string]bool{
		"internal/platform/livepage/capacity.go": true, // a cache
		"internal/berg/nodes/nodes.go":           true, // a cache
		"internal/berg/prepull/watches.go":       true, // a cache, and what of a node is a change
		"cmd/kubectl-berg/report/convert.go":     true, // shows each node
		"cmd/kubectl-berg/doctor/capacity.go":    true, // warns of a cordoned node
	}
	users := map[string]bool{}
	for _, path := range sources(t, ".go") {
		family := strings.HasPrefix(path, "internal/berg/") || strings.HasPrefix(path, "internal/platform/") || strings.HasPrefix(path, "cmd/kubectl-berg/")
		if !family || strings.HasSuffix(path, "_test.go") || filepath.Dir(path) == "internal/berg/view" {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", path), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(node ast.Node) bool {
			selector, ok := node.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			switch selector.Sel.Name {
			case "Unschedulable", "Taints", "NodeReady":
				if !copies[path] {
					t.Errorf("%s reads %s of a node: use view.TakesInstances", path, selector.Sel.Name)
				}
			case "TakesInstances", "SelectNodes", "NewCapacity", "IsForInstances":
				users[filepath.Dir(path)] = true
			}
			return true
		})
	}
	for _, dir := range []string{"cmd/kubectl-berg/doctor", "cmd/kubectl-berg/overview", "cmd/kubectl-berg/command", "internal/platform/livepage", "internal/berg/prepull", "internal/berg/nodes"} {
		if !users[dir] {
			t.Errorf("%s does not ask package view which nodes take instances", dir)
		}
	}
}
