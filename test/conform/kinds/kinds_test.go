// Package kinds holds every Kind of the API to what tools need that wait for a resource: kubectl wait, Flux, Argo CD and
// Helm. They go by kstatus: https://github.com/kubernetes-sigs/cli-utils/tree/master/pkg/kstatus. The Kinds come from the
// scheme, so a new one is held to it without a line here.
package kinds

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/bergctf/berg-operator/cmd/berg-operator/families"
	"github.com/bergctf/berg-operator/internal/operator"
)

// root is the repository, seen from this package.
const root = "../../.."

// published is a Kind of the API: its type, and what a cluster is told about it.
type published struct {
	object  client.Object
	columns []apiextensionsv1.CustomResourceColumnDefinition
	// status is the schema of the status; nil if the Kind has none.
	status *apiextensionsv1.JSONSchemaProps
}

// kinds are all Kinds of all families. Each must be published.
func kinds(t *testing.T) map[schema.GroupVersionKind]published {
	t.Helper()
	definitions := crds(t)
	all := map[schema.GroupVersionKind]published{}
	for _, f := range families.All() {
		scheme, err := operator.NewScheme(f)
		if err != nil {
			t.Fatal(err)
		}
		for gvk, of := range scheme.AllKnownTypes() {
			object, ok := reflect.New(of).Interface().(client.Object)
			if gvk.Group != f.API || !ok {
				continue // a list, or options of requests
			}
			version, ok := definitions[gvk]
			if !ok {
				t.Errorf("config has no CRD for %s", gvk)
				continue
			}
			kind := published{object: object, columns: version.AdditionalPrinterColumns}
			if status, has := version.Schema.OpenAPIV3Schema.Properties["status"]; has {
				kind.status = &status
			}
			all[gvk] = kind
			delete(definitions, gvk)
		}
	}
	for gvk := range definitions {
		t.Errorf("config has a CRD for %s, which is in the scheme of no family", gvk)
	}
	if len(all) < 12 {
		t.Fatalf("only %d Kinds were found", len(all))
	}
	return all
}

func crds(t *testing.T) map[schema.GroupVersionKind]apiextensionsv1.CustomResourceDefinitionVersion {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "config/*/crd/bases/*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[schema.GroupVersionKind]apiextensionsv1.CustomResourceDefinitionVersion{}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(text, &crd); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		for _, version := range crd.Spec.Versions {
			all[schema.GroupVersionKind{Group: crd.Spec.Group, Version: version.Name, Kind: crd.Spec.Names.Kind}] = version
		}
	}
	return all
}

func TestEveryKindSaysWhetherItIsReady(t *testing.T) {
	reporting := 0
	for gvk, kind := range kinds(t) {
		t.Run(gvk.Group+"/"+gvk.Kind, func(t *testing.T) {
			if kind.status == nil || len(kind.status.Properties) == 0 {
				// It is data that the operator reads or writes once. Nothing waits for it.
				return
			}
			reporting++
			conditions, ok := kind.status.Properties["conditions"]
			if !ok {
				t.Fatal("the status has no conditions")
			}
			if ptr.Deref(conditions.XListType, "") != "map" || !reflect.DeepEqual(conditions.XListMapKeys, []string{"type"}) {
				t.Error("conditions must be a list of type map with the key type: a condition could be there twice")
			}
			// Without it an edited resource counts as what it was before the edit.
			if field := kind.status.Properties["observedGeneration"]; field.Type != "integer" {
				t.Error("the status has no observedGeneration")
			}
			if !showsReady(kind.columns) {
				t.Error(`kubectl get shows no column Ready: add the marker +kubebuilder:printcolumn:name="Ready"`)
			}
			values := constants(t, kind.object)
			for _, condition := range []string{"Ready", "Stalled"} {
				if values["Condition"+condition] != condition {
					t.Errorf("the package of its type has no constant Condition%s = %q for programs that wait", condition, condition)
				}
			}
		})
	}
	if reporting < 10 {
		t.Errorf("only %d Kinds have conditions", reporting)
	}
}

func showsReady(columns []apiextensionsv1.CustomResourceColumnDefinition) bool {
	for _, column := range columns {
		if column.Name == "Ready" && column.JSONPath == `.status.conditions[?(@.type=="Ready")].status` {
			return true
		}
	}
	return false
}

// constants are the exported string constants of the package of an object's type, by name.
func constants(t *testing.T, object client.Object) map[string]string {
	t.Helper()
	_, folder, ok := strings.Cut(reflect.TypeOf(object).Elem().PkgPath(), "github.com/bergctf/berg-operator/")
	if !ok {
		t.Fatalf("%T is not of this repository", object)
	}
	all := map[string]string{}
	err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(node ast.Node) bool {
			spec, ok := node.(*ast.ValueSpec)
			if !ok || len(spec.Names) != 1 || len(spec.Values) != 1 {
				return true
			}
			if literal, ok := spec.Values[0].(*ast.BasicLit); ok && literal.Kind == token.STRING {
				all[spec.Names[0].Name], err = strconv.Unquote(literal.Value)
			}
			return true
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
