// Package confinement holds the plans of all API groups to one rule: an object that confines pods has no owner reference. An owner
// that is deleted in the foreground takes what it owns along before its finalizer has stopped the pods. The plans are in the golden
// files of the packages that make them.
package confinement

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

const internal = "../../../internal"

// confining are the kinds that restrict what pods reach, use and may be.
var confining = []string{"CiliumNetworkPolicy", "LimitRange", "NetworkPolicy", "ResourceQuota"}

func TestWhatConfinesHasNoOwner(t *testing.T) {
	planned := map[string][]string{} // kinds, by package
	walk(t, func(path string, text []byte) {
		if !strings.HasSuffix(path, ".golden.yaml") {
			return
		}
		folder, _, _ := strings.Cut(filepath.Dir(path), "/testdata")
		for _, document := range strings.Split(string(text), "---\n") {
			kind, owners := parse(t, path, document)
			if kind == "" {
				continue
			}
			planned[folder] = append(planned[folder], kind)
			if len(owners) > 0 {
				t.Errorf("%s: a %s has the owner %s", path, kind, owners[0].Kind)
			}
		}
	})
	made := 0
	walk(t, func(path string, text []byte) {
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return
		}
		for _, kind := range literals(t, path, text) {
			made++
			if !slices.Contains(planned[filepath.Dir(path)], kind) {
				t.Errorf("%s makes a %s that no golden file of its package has: add one, so that this test reads it", path, kind)
			}
		}
	})
	if made < 8 {
		t.Errorf("only %d places that make such objects were found", made)
	}
}

// parse returns the kind of a document, as its own field or by its content, and its owners; "" if it confines nothing.
func parse(t *testing.T, path, document string) (kind string, owners []metav1.OwnerReference) {
	t.Helper()
	var o struct {
		metav1.PartialObjectMetadata `json:",inline"`
		Spec                         map[string]any `json:"spec"`
	}
	if err := yaml.Unmarshal([]byte(document), &o); err != nil {
		return "", nil // a document of another form
	}
	has := func(field string) bool { _, ok := o.Spec[field]; return ok }
	switch {
	case slices.Contains(confining, o.Kind):
		kind = o.Kind
	case has("policyTypes"):
		kind = "NetworkPolicy"
	case has("endpointSelector"):
		kind = "CiliumNetworkPolicy"
	case has("hard"):
		kind = "ResourceQuota"
	case has("limits"):
		kind = "LimitRange"
	}
	return kind, o.OwnerReferences
}

// literals returns the kinds of the confining objects that a file makes: a literal without content is for reading one.
func literals(t *testing.T, path string, text []byte) (kinds []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	add := func(kind ast.Expr, elements []ast.Expr) {
		if s, ok := kind.(*ast.SelectorExpr); ok && len(elements) > 0 && slices.Contains(confining, s.Sel.Name) {
			kinds = append(kinds, s.Sel.Name)
		}
	}
	ast.Inspect(file, func(node ast.Node) bool {
		literal, ok := node.(*ast.CompositeLit)
		if !ok {
			return true
		}
		add(literal.Type, literal.Elts)
		// The elements of a list leave its type out.
		if list, ok := literal.Type.(*ast.ArrayType); ok {
			element := list.Elt
			if pointer, ok := element.(*ast.StarExpr); ok {
				element = pointer.X
			}
			for _, e := range literal.Elts {
				if one, ok := e.(*ast.CompositeLit); ok && one.Type == nil {
					add(element, one.Elts)
				}
			}
		}
		return true
	})
	return kinds
}

func walk(t *testing.T, visit func(path string, text []byte)) {
	t.Helper()
	err := filepath.WalkDir(internal, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err == nil {
			visit(path, text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
