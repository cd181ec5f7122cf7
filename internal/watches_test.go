package internal_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// The last predicates of a watch replace those before: a second option would let events of every object in the cluster through.
func TestAWatchHasItsPredicatesInOneOption(t *testing.T) {
	positions := token.NewFileSet()
	watches := 0
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		file, err := parser.ParseFile(positions, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(node ast.Node) bool {
			if call, ok := node.(*ast.CallExpr); ok {
				options, isWatch := optionsOfWatch(call)
				if isWatch {
					watches++
				}
				if options > 1 {
					t.Errorf("%s: a watch with %d options that may be predicates", positions.Position(call.Args[len(call.Args)-1].Pos()), options)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if watches < 40 {
		t.Errorf("only %d watches were found", watches)
	}
}

// optionsOfWatch counts the options of For, Owns or Watches of a controller's builder that can be predicates.
func optionsOfWatch(call *ast.CallExpr) (options int, isWatch bool) {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return 0, false
	}
	before, ok := map[string]int{"For": 1, "Owns": 1, "Watches": 2}[method.Sel.Name]
	if !ok || len(call.Args) < before {
		return 0, false
	}
	for _, option := range call.Args[before:] {
		other, ok := option.(*ast.SelectorExpr) // such as builder.OnlyMetadata
		if !ok || !strings.HasPrefix(other.Sel.Name, "Only") && !strings.HasPrefix(other.Sel.Name, "Match") {
			options++
		}
	}
	return options, true
}

func TestOptionsOfWatch(t *testing.T) {
	for text, want := range map[string]int{
		`b.Watches(o, h)`: 0,
		`b.Watches(o, h, named(x), builder.WithPredicates(p))`:             2,
		`b.Watches(o, h, builder.OnlyMetadata, builder.WithPredicates(p))`: 1,
		`b.For(o, builder.WithPredicates(p, q))`:                           1,
		`b.Owns(o, builder.MatchEveryOwner)`:                               0,
	} {
		expression, err := parser.ParseExpr(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, isWatch := optionsOfWatch(expression.(*ast.CallExpr)); got != want || !isWatch {
			t.Errorf("%s: got %d, %t, want %d", text, got, isWatch, want)
		}
	}
}

// A manager fills a cache of controller-runtime that selects objects on the leader alone: a controller of a standby would wait for
// it in vain, and end the process after two minutes.
func TestEveryReplicaFillsItsCaches(t *testing.T) {
	const caches = `"sigs.k8s.io/controller-runtime/pkg/cache"`
	positions := token.NewFileSet()
	wraps := 0
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(positions, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		name := ""
		for _, imported := range file.Imports {
			if imported.Path.Value == caches {
				name = "cache"
				if imported.Name != nil {
					name = imported.Name.Name
				}
			}
		}
		made := map[string]bool{}
		ast.Inspect(file, func(node ast.Node) bool {
			switch n := node.(type) {
			case *ast.AssignStmt:
				if call, ok := n.Rhs[0].(*ast.CallExpr); ok && isSelector(call.Fun, name, "New") {
					if to, ok := n.Lhs[0].(*ast.Ident); ok {
						made[to.Name] = true
					}
				}
			case *ast.CallExpr:
				if f, ok := n.Fun.(*ast.SelectorExpr); !ok || f.Sel.Name != "Add" || len(n.Args) != 1 {
					return true
				}
				if added, ok := n.Args[0].(*ast.Ident); ok && made[added.Name] {
					t.Errorf("%s: a cache is added to a manager as it is: make it by OfReplica of internal/kit/cache", positions.Position(n.Pos()))
				}
				if wrapped, ok := n.Args[0].(*ast.CompositeLit); ok && isIdent(wrapped.Type, "ofReplica") {
					wraps++
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if wraps == 0 {
		t.Error("no cache was found")
	}
}

func isIdent(node ast.Expr, name string) bool {
	i, ok := node.(*ast.Ident)
	return ok && i.Name == name
}

func isSelector(node ast.Expr, from, name string) bool {
	s, ok := node.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != name {
		return false
	}
	of, ok := s.X.(*ast.Ident)
	return ok && of.Name == from
}
