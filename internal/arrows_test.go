package internal_test

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// upwardArrows is how many arrows between the files of a package point upward; packages without one are left out. A number
// can only fall. An arrow runs from a file to one whose declarations it uses; it points upward if no order of the files lets
// all arrows point downward and this one is among the fewest that do not.
var upwardArrows = map[string]int{
	"api/kibaship/v1alpha1":                     2,
	"cmd/berg-tunnel/command":                   4,
	"cmd/kubectl-berg/console":                  1,
	"cmd/kubectl-berg/doctor":                   1,
	"cmd/kubectl-berg/importer":                 8,
	"cmd/kubectl-berg/lint":                     3,
	"cmd/kubectl-berg/why":                      1,
	"internal/platform/livepage":                6,
	"internal/platform/instances":               1,
	"internal/berg/challengeinstance":           12,
	"internal/berg/challengeinstance/manifests": 2,
	"internal/berg/challengeinstance/status":    5,
	"internal/berg/check":                       4,
	"internal/berg/flagexec":                    1,
	"internal/berg/plan":                        2,
	"internal/berg/prepull":                     3,
	"internal/berg/record":                      2,
	"internal/berg/redact":                      2,
	"internal/berg/rules":                       2,
	"internal/berg/view":                        2,
	"internal/hexactf/challenge":                4,
	"internal/hexactf/kafka":                    2,
	"internal/kibaship/deployment":              4,
	"internal/kibaship/project":                 1,
	"internal/kit/apply":                        3,
	"internal/kit/ownership":                    1,
	"internal/kit/reconcile":                    1,
	"internal/operator":                         3,
	"internal/tunnel/expose":                    3,
	"internal/tunnel/proxy":                     3,
	"internal/tunnel/proxy/dataconn":            2,
	"internal/tunnel/tunnelproxy":               3,
	"internal/tunnel/tunnelproxy/backend":       2,
	"internal/tunnel/tunnelproxy/manifests":     2,
}

func TestFilesOfAPackagePointDownward(t *testing.T) {
	packages := map[string]map[string]*ast.File{}
	for _, path := range sources(t, ".go") {
		dir := filepath.Dir(path)
		production := strings.HasPrefix(path, "internal/") || strings.HasPrefix(path, "cmd/") || strings.HasPrefix(path, "api/")
		production = production && !strings.HasPrefix(path, "api/client/") // generated
		if !production || strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", path), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		if packages[dir] == nil {
			packages[dir] = map[string]*ast.File{}
		}
		packages[dir][filepath.Base(path)] = file
	}
	if len(packages) < 60 {
		t.Fatalf("only %d packages were found", len(packages))
	}
	for _, dir := range slices.Sorted(maps.Keys(packages)) {
		arrows := arrowsBetween(packages[dir])
		up := upward(arrows)
		switch limit := upwardArrows[dir]; {
		case len(up) > limit:
			t.Errorf("%s: %d of %d arrows between files point upward, more than %d", dir, len(up), len(arrows), limit)
			for _, a := range up {
				t.Logf("  %s uses %s of %s", a.from, strings.Join(arrows[a], ", "), a.to)
			}
		case len(up) < limit:
			t.Errorf("%s: only %d arrows between files point upward: lower its number from %d", dir, len(up), limit)
		}
	}
	for dir := range upwardArrows {
		if packages[dir] == nil {
			t.Errorf("%s is no package any more: remove its number", dir)
		}
	}
}

func TestUpward(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		want  string
	}{
		"a chain": {
			files: map[string]string{"a.go": "func a() { b() }", "b.go": "func b() { c() }", "c.go": "func c() {}"},
			want:  "[] of 2",
		},
		"a circle has one arrow that points upward": {
			files: map[string]string{"a.go": "func a() { b() }", "b.go": "func b() { c() }", "c.go": "func c() { a() }"},
			want:  "[{c.go a.go}] of 3",
		},
		"methods belong to the file that declares them": {
			files: map[string]string{"a.go": "type t int\nfunc (x t) a() { x.b() }", "b.go": "func (t) b() {}"},
			want:  "[{b.go a.go}] of 2",
		},
		"a local variable, a field and another package are no arrow": {
			files: map[string]string{"a.go": "func a(b int) { b++; _ = s{b: 1}; fmt.b() }\ntype s struct{ b int }", "b.go": "func b() {}"},
			want:  "[] of 0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]*ast.File{}
			for name, text := range test.files {
				file, err := parser.ParseFile(token.NewFileSet(), name, "package p\nimport \"fmt\"\n"+text, 0)
				if err != nil {
					t.Fatal(err)
				}
				files[name] = file
			}
			arrows := arrowsBetween(files)
			if got := fmt.Sprint(upward(arrows), " of ", len(arrows)); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

type arrow struct{ from, to string }

// arrowsBetween returns which file of a package uses which other one, and the names of what it uses. Without types it cannot
// say of which type a method is: a name that two files declare, or that a field has too, draws no arrow.
func arrowsBetween(files map[string]*ast.File) map[arrow][]string {
	declared, members := declarations(files)
	arrows := map[arrow][]string{}
	for from, file := range files {
		use := func(name string, of map[string][]string) {
			if to := of[name]; len(to) == 1 && to[0] != from && !slices.Contains(arrows[arrow{from, to[0]}], name) {
				arrows[arrow{from, to[0]}] = append(arrows[arrow{from, to[0]}], name)
			}
		}
		imported := map[string]bool{}
		for _, i := range file.Imports {
			imported[importedAs(i)] = true
		}
		unresolved := map[*ast.Ident]bool{} // of the file: used, and declared in another one
		for _, name := range file.Unresolved {
			unresolved[name] = true
		}
		ast.Inspect(file, func(node ast.Node) bool {
			switch n := node.(type) {
			case *ast.Ident:
				if unresolved[n] {
					use(n.Name, declared)
				}
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); !ok || !imported[x.Name] || !unresolved[x] {
					use(n.Sel.Name, members)
				}
			}
			return true
		})
	}
	return arrows
}

// declarations returns which files declare a name of the package, and which declare a method. The names of fields are no methods.
func declarations(files map[string]*ast.File) (declared, members map[string][]string) {
	declared, members = map[string][]string{}, map[string][]string{}
	fields := map[string]bool{}
	for name, file := range files {
		ast.Inspect(file, func(node ast.Node) bool {
			if s, ok := node.(*ast.StructType); ok {
				addFields(func(names ...ast.Expr) {
					for _, n := range names {
						fields[n.(*ast.Ident).Name] = true
					}
				}, s.Fields)
			}
			return true
		})
		for _, declaration := range file.Decls {
			switch d := declaration.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					declared[d.Name.Name] = append(declared[d.Name.Name], name)
				} else {
					members[d.Name.Name] = append(members[d.Name.Name], name)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						declared[s.Name.Name] = append(declared[s.Name.Name], name)
					case *ast.ValueSpec:
						for _, n := range s.Names {
							declared[n.Name] = append(declared[n.Name], name)
						}
					}
				}
			}
		}
	}
	maps.DeleteFunc(members, func(name string, _ []string) bool { return fields[name] })
	return declared, members
}

func importedAs(i *ast.ImportSpec) string {
	if i.Name != nil {
		return i.Name.Name
	}
	path := strings.Trim(i.Path.Value, `"`)
	return path[strings.LastIndex(path, "/")+1:]
}

// upward returns the arrows that point upward in the best order of the files that it finds: each file is moved to where it
// is best, until no move helps.
func upward(arrows map[arrow][]string) []arrow {
	names := map[string]bool{}
	for a := range arrows {
		names[a.from], names[a.to] = true, true
	}
	order := slices.Sorted(maps.Keys(names))
	slices.SortStableFunc(order, func(a, b string) int { return cmp.Compare(balance(arrows, b), balance(arrows, a)) })
	for improved := true; improved; {
		improved = false
		for _, name := range slices.Clone(order) {
			at := slices.Index(order, name)
			without := slices.Delete(slices.Clone(order), at, at+1)
			best, gain := at, 0
			for _, step := range []int{-1, 1} {
				now := 0
				for to := at; ; to += step {
					var passed string
					if step < 0 {
						if to == 0 {
							break
						}
						passed = without[to-1]
					} else {
						if to == len(without) {
							break
						}
						passed = without[to]
					}
					_, uses := arrows[arrow{name, passed}]
					_, used := arrows[arrow{passed, name}]
					switch {
					case uses && !used:
						now -= step
					case used && !uses:
						now += step
					}
					if now > gain {
						best, gain = to+step, now
					}
				}
			}
			if gain > 0 {
				order, improved = slices.Insert(without, best, name), true
			}
		}
	}
	var up []arrow
	for a := range arrows {
		if slices.Index(order, a.from) > slices.Index(order, a.to) {
			up = append(up, a)
		}
	}
	slices.SortFunc(up, func(a, b arrow) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) })
	return up
}

// balance is how many more files a file uses than use it.
func balance(arrows map[arrow][]string, name string) (n int) {
	for a := range arrows {
		switch name {
		case a.from:
			n++
		case a.to:
			n--
		}
	}
	return n
}
