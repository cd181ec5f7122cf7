package chart

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	lua "github.com/yuin/gopher-lua"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kubejson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// healthScripts are those that docs/gitops.md has Argo CD run, by kind.
func healthScripts(t *testing.T) map[string]string {
	t.Helper()
	page, err := os.ReadFile("../../../docs/gitops.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```yaml\n")
	block, _, ends := strings.Cut(rest, "\n```\n")
	var settings struct{ Data map[string]string }
	if err := yaml.Unmarshal([]byte(block), &settings); err != nil || !ends {
		t.Fatalf("the first block is no ConfigMap: %v", err)
	}
	return settings.Data
}

// table is a value of JSON as Argo CD gives it to a script.
func table(state *lua.LState, value any) lua.LValue {
	switch value := value.(type) {
	case map[string]any:
		fields := state.NewTable()
		for key, part := range value {
			fields.RawSetString(key, table(state, part))
		}
		return fields
	case []any:
		items := state.NewTable()
		for _, item := range value {
			items.Append(table(state, item))
		}
		return items
	case string:
		return lua.LString(value)
	case float64:
		return lua.LNumber(value)
	case bool:
		return lua.LBool(value)
	default:
		return lua.LNil
	}
}

// kindsWithConditions are all kinds whose status has conditions, as <group>_<kind>.
func kindsWithConditions(t *testing.T) (all []string) {
	t.Helper()
	files, err := filepath.Glob("../../../config/*/crd/bases/*.yaml")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d definitions, %v", len(files), err)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(text, definition); err != nil {
			t.Fatal(err)
		}
		status := definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"]
		if _, ok := status.Properties["conditions"]; ok {
			all = append(all, definition.Spec.Group+"_"+definition.Spec.Names.Kind)
		}
	}
	return all
}

// Argo CD runs such a script with the resource as obj, and takes a table with status and message.
func TestHealthInArgoCD(t *testing.T) {
	scripts := healthScripts(t)
	for _, kind := range kindsWithConditions(t) {
		script := scripts["resource.customizations.health."+kind]
		for status, want := range map[string][2]string{
			`{}`:            {"Progressing", "The operator has not seen it yet"},
			`{"status":{}}`: {"Progressing", "The operator has not seen it yet"},
			`{"status":{"observedGeneration":1,"conditions":[{"type":"Ready","status":"True","message":"it runs"}]}}`:                                                                {"Progressing", "The operator has not seen the last change yet"},
			`{"status":{"observedGeneration":1,"conditions":[{"type":"Ready","status":"False","message":"no image"},{"type":"Stalled","status":"True","message":"fix the image"}]}}`: {"Progressing", "The operator has not seen the last change yet"},
			`{"status":{"observedGeneration":2,"conditions":[{"type":"Ready","status":"True","message":"it runs"}]}}`:                                                                {"Healthy", "it runs"},
			`{"status":{"conditions":[{"type":"Ready","status":"True","message":"it runs"}]}}`:                                                                                       {"Healthy", "it runs"},
			`{"status":{"observedGeneration":2,"conditions":[{"type":"Ready","status":"False","message":"pods start"}]}}`:                                                            {"Progressing", "pods start"},
			`{"status":{"observedGeneration":2,"conditions":[{"type":"Ready","status":"False","message":"no image"},{"type":"Stalled","status":"True","message":"fix the image"}]}}`: {"Degraded", "fix the image"},
		} {
			state := lua.NewState(lua.Options{SkipOpenLibs: true})
			lua.OpenBase(state) // ipairs
			object := map[string]any{"metadata": map[string]any{"generation": 2.0}}
			if err := json.Unmarshal([]byte(status), &object); err != nil {
				t.Fatal(err)
			}
			state.SetGlobal("obj", table(state, object))
			if err := state.DoString(script); err != nil {
				t.Fatalf("%s: %v", kind, err)
			}
			health, _ := state.Get(-1).(*lua.LTable)
			if health == nil {
				t.Fatalf("%s of %s returns no table", kind, status)
			}
			if got := [2]string{health.RawGetString("status").String(), health.RawGetString("message").String()}; got != want {
				t.Errorf("%s of %s: %q, want %q", kind, status, got, want)
			}
			state.Close()
		}
	}
}

// Flux and Helm go by kstatus. A Failed resource is not Current, and neither is one that was edited a moment ago.
func TestHealthInFluxAndHelm(t *testing.T) {
	for object, want := range map[string]status.Status{
		`{"metadata":{"generation":2}}`: status.CurrentStatus, // it cannot know better: nothing has a status before the operator has seen it
		`{"metadata":{"generation":2},"status":{"observedGeneration":2,"conditions":[{"type":"Ready","status":"True"}]}}`:                                       status.CurrentStatus,
		`{"metadata":{"generation":3},"status":{"observedGeneration":2,"conditions":[{"type":"Ready","status":"True"}]}}`:                                       status.InProgressStatus,
		`{"metadata":{"generation":2},"status":{"observedGeneration":2,"conditions":[{"type":"Ready","status":"False"}]}}`:                                      status.InProgressStatus,
		`{"metadata":{"generation":2},"status":{"observedGeneration":2,"conditions":[{"type":"Ready","status":"Unknown"}]}}`:                                    status.InProgressStatus,
		`{"metadata":{"generation":2},"status":{"observedGeneration":2,"conditions":[{"type":"Ready","status":"False"},{"type":"Stalled","status":"True"}]}}`:   status.FailedStatus,
		`{"metadata":{"generation":3},"status":{"observedGeneration":2,"conditions":[{"type":"Ready","status":"False"},{"type":"Stalled","status":"True"}]}}`:   status.InProgressStatus,
		`{"metadata":{"generation":2},"status":{"observedGeneration":2,"conditions":[{"type":"Ready","status":"Unknown"},{"type":"Stalled","status":"True"}]}}`: status.FailedStatus,
	} {
		for _, kind := range kindsWithConditions(t) {
			group, name, _ := strings.Cut(kind, "_")
			resource := &unstructured.Unstructured{}
			if err := kubejson.Unmarshal([]byte(object), &resource.Object); err != nil { // whole numbers are int64
				t.Fatal(err)
			}
			resource.SetAPIVersion(group + "/v1")
			resource.SetKind(name)
			got, err := status.Compute(resource)
			if err != nil || got.Status != want {
				t.Errorf("%s of %s: %+v, %v, want %s", kind, object, got, err, want)
			}
		}
	}
}
