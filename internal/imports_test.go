// Package internal_test holds the module to its layers: what each may import, as an allowlist.
// A new family needs no line here. docs/adr/0018-five-families.md draws the picture.
package internal_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/bergctf/berg-operator/"

// allowed returns what a package of the module may import of the module: every package below
// one of these. dir is the directory of the package, from the root of the module.
func allowed(dir string, test bool) []string {
	floor, rest, _ := strings.Cut(dir, "/")
	name, _, _ := strings.Cut(rest, "/")
	switch {
	case dir == "api/client" || strings.HasPrefix(dir, "api/client/"): // generated for all families
		return []string{"api"}
	case floor == "api":
		return []string{"api/" + name}
	case floor == "cmd" && strings.HasPrefix(dir, "cmd/berg-operator"):
		return []string{"cmd/berg-operator", "internal", "deploy"}
	case dir == "cmd/kubectl-berg" || strings.HasPrefix(dir, "cmd/kubectl-berg/"): // the rules for Challenges, what they need, how they are stored and what removes flags are the operator's
		return []string{"cmd/" + name, "internal/kit", "api", "internal/berg/rules", "internal/berg/redact", "internal/berg/plan", "internal/berg/view"}
	case floor == "cmd" && name == "berg-api":
		return []string{"cmd/berg-api", "internal/kit", "api", "internal/platform"}
	case floor == "cmd": // a program of its own; berg-<family> is that of a family
		return []string{"cmd/" + name, "internal/kit", "api", "internal/" + strings.TrimPrefix(name, "berg-")}
	case floor == "internal" && name == "kit":
		return []string{"internal/kit"}
	case floor == "internal" && name == "config":
		return []string{"internal/kit"}
	case floor == "internal" && name == "operator":
		return []string{"internal/operator", "internal/kit", "internal/config"}
	case floor == "internal" && name == "platform": // the platform API knows the kinds, what they need, what an event looks like and what removes flags, and nothing else of the operator
		return []string{"internal/platform", "internal/kit", "api/berg", "internal/berg/plan", "internal/berg/redact", "internal/berg/rules", "internal/berg/view"}
	case floor == "internal" && name == "gate": // it tells players why an instance does not run in the words of the one view of an event
		gate := []string{"internal/gate", "internal/kit", "api/berg", "internal/berg/view"}
		if test { // it is attacked alike from inside and from outside
			gate = append(gate, "test/lib")
		}
		return gate
	case floor == "internal":
		family := []string{"internal/" + name, "api/" + name, "internal/kit", "internal/config"}
		if test { // careless authors write for fuzz tests, too
			family = append(family, "test/lib")
		}
		return family
	case dir == "test/cluster" || strings.HasPrefix(dir, "test/cluster/"):
		return []string{"test/cluster"} // it could serve any operator
	default:
		return []string{""} // tests and scripts look at everything
	}
}

func TestEveryLayerImportsWhatIsBelowIt(t *testing.T) {
	packages := map[string]bool{}
	root := ".."
	for _, floor := range []string{"api", "cmd", "internal", "test"} {
		err := filepath.WalkDir(filepath.Join(root, floor), func(file string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(file) != ".go" {
				return err
			}
			relative, err := filepath.Rel(root, file)
			if err != nil {
				return err
			}
			dir := path.Dir(filepath.ToSlash(relative))
			packages[dir] = true
			for _, imported := range importsOf(t, file) {
				if !below(allowed(dir, strings.HasSuffix(file, "_test.go")), imported) {
					t.Errorf("%s imports %s, which is not below it", relative, imported)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(packages) < 30 {
		t.Fatalf("only %d packages were found", len(packages))
	}
}

// importsOf returns which packages of the module a file imports, from its root.
func importsOf(t *testing.T, file string) (all []string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range parsed.Imports {
		imported, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		if rest, ours := strings.CutPrefix(imported, module); ours {
			all = append(all, rest)
		}
	}
	return all
}

func below(roots []string, dir string) bool {
	for _, root := range roots {
		if root == "" || dir == root || strings.HasPrefix(dir, root+"/") {
			return true
		}
	}
	return false
}

// A package of the kit that one family alone uses belongs to that family.
func TestEveryPackageOfTheKitHasTwoUsers(t *testing.T) {
	rooms, err := os.ReadDir("kit")
	if err != nil {
		t.Fatal(err)
	}
	users := map[string]map[string]bool{}
	err = filepath.WalkDir("..", func(file string, entry fs.DirEntry, err error) error {
		if entry != nil && entry.IsDir() && (entry.Name() == "test" || entry.Name() == "tools") {
			return fs.SkipDir
		}
		if err != nil || filepath.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") {
			return err
		}
		for _, imported := range importsOf(t, file) {
			if room, ok := strings.CutPrefix(imported, "internal/kit/"); ok {
				if users[room] == nil {
					users[room] = map[string]bool{}
				}
				users[room][userOf(filepath.ToSlash(file))] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, room := range rooms {
		if room.IsDir() && len(users[room.Name()]) < 2 {
			t.Errorf("internal/kit/%s is imported by %v alone: a package of the kit has two users", room.Name(), users[room.Name()])
		}
	}
}

// userOf is the owner of a file: a family, another package of the kit, or a part of the process.
func userOf(file string) string {
	parts := strings.Split(path.Dir(strings.TrimPrefix(file, "../")), "/")
	if len(parts) > 2 && parts[1] == "kit" {
		return strings.Join(parts[:3], "/")
	}
	return strings.Join(parts[:min(2, len(parts))], "/")
}
