package internal_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A variable that has the name of a function of its package hides it: who reads a call further
// down takes it for one of the function.
func TestNoVariableHidesAFunctionOfItsPackage(t *testing.T) {
	positions := token.NewFileSet()
	packages := map[string][]*ast.File{} // with their tests
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		hidden := strings.HasPrefix(entry.Name(), ".") && path != ".."
		if entry.IsDir() && (hidden || slices.Contains([]string{"bin", "dist", "node_modules"}, entry.Name())) {
			return filepath.SkipDir
		}
		if entry.IsDir() || filepath.Ext(path) != ".go" {
			return nil
		}
		file, err := parser.ParseFile(positions, path, nil, parser.SkipObjectResolution)
		if err == nil {
			of := filepath.Dir(path) + ":" + file.Name.Name
			packages[of] = append(packages[of], file)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(packages) < 80 {
		t.Fatalf("only %d packages were found", len(packages))
	}
	for _, files := range packages {
		functions := map[string]bool{}
		for _, file := range files {
			for _, declaration := range file.Decls {
				if f, ok := declaration.(*ast.FuncDecl); ok && f.Recv == nil {
					functions[f.Name.Name] = true
				}
			}
		}
		for _, file := range files {
			for _, variable := range variables(file) {
				if functions[variable.Name] {
					t.Errorf("%s: %s is a function of the package, too", strings.TrimPrefix(positions.Position(variable.Pos()).String(), "../"), variable.Name)
				}
			}
		}
	}
}

// variables returns where the variables, parameters and results of a file are declared. What :=
// assigns to again is among them.
func variables(file *ast.File) (all []*ast.Ident) {
	add := func(expressions ...ast.Expr) {
		for _, e := range expressions {
			if name, ok := e.(*ast.Ident); ok && name.Name != "_" {
				all = append(all, name)
			}
		}
	}
	ast.Inspect(file, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				add(n.Lhs...)
			}
		case *ast.RangeStmt:
			if n.Tok == token.DEFINE {
				add(n.Key, n.Value)
			}
		case *ast.ValueSpec:
			for _, name := range n.Names {
				add(name)
			}
		case *ast.FuncDecl:
			addFields(add, n.Recv)
		case *ast.FuncType:
			addFields(add, n.Params)
			addFields(add, n.Results)
		}
		return true
	})
	return all
}

func addFields(add func(...ast.Expr), fields *ast.FieldList) {
	if fields == nil {
		return
	}
	for _, field := range fields.List {
		for _, name := range field.Names {
			add(name)
		}
	}
}

// The doc comment of a package is the map of its files: one that is renamed must not stay on it.
func TestEveryFileOnTheMapOfAPackageExists(t *testing.T) {
	named := regexp.MustCompile(`\b([a-z_]+\.go)\b`)
	maps := 0
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Name() != "doc.go" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, name := range named.FindAllString(string(text), -1) {
			maps++
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), name)); err != nil {
				t.Errorf("%s names %s, which is not in its folder", strings.TrimPrefix(path, "../"), name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if maps < 50 {
		t.Fatalf("only %d files are on a map", maps)
	}
}

// Metrics and log lines show a controller by its name, and a manager refuses to start a second one of the same name: with
// all API groups in one process the operator would not start.
func TestEveryControllerHasItsOwnName(t *testing.T) {
	named := regexp.MustCompile(`\.?Named\("([^"]+)"\)`)
	files := map[string]string{}
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, found := range named.FindAllStringSubmatch(string(content), -1) {
			if other, taken := files[found[1]]; taken {
				t.Errorf("%s and %s have a controller with the name %s", other, path, found[1])
			}
			files[found[1]] = path
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 10 {
		t.Fatalf("only %d controllers were found", len(files))
	}
}

// Who renames a function or a type often forgets its comment, which then speaks of something that nothing has as its name.
func TestEveryDocCommentBeginsWithTheName(t *testing.T) {
	documented := 0
	for _, path := range sources(t, ".go") {
		if strings.HasSuffix(path, "_test.go") || !strings.HasPrefix(path, "internal/") && !strings.HasPrefix(path, "cmd/") && !strings.HasPrefix(path, "api/") {
			continue
		}
		positions := token.NewFileSet()
		file, err := parser.ParseFile(positions, filepath.Join("..", path), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if ast.IsGenerated(file) {
			continue
		}
		check := func(name *ast.Ident, doc *ast.CommentGroup) {
			words := strings.Fields(doc.Text())
			if len(words) == 0 || name.Name == "init" {
				return
			}
			documented++
			if first := strings.TrimRight(words[0], ",.:;"); first != name.Name && !slices.Contains([]string{"A", "An", "The"}, first) {
				t.Errorf("%s:%d: the comment of %s begins with %s", path, positions.Position(doc.Pos()).Line, name.Name, first)
			}
		}
		for _, declaration := range file.Decls {
			switch d := declaration.(type) {
			case *ast.FuncDecl:
				check(d.Name, d.Doc)
			case *ast.GenDecl:
				for _, s := range d.Specs {
					if s, ok := s.(*ast.TypeSpec); ok && s.Doc != nil {
						check(s.Name, s.Doc)
					} else if ok && len(d.Specs) == 1 {
						check(s.Name, d.Doc)
					}
				}
			}
		}
	}
	if documented < 1000 {
		t.Fatalf("only %d comments were found", documented)
	}
}
