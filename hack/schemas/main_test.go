package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"sigs.k8s.io/yaml"
)

const (
	config    = "../../config"
	published = "../../deploy/schemas"
)

// schemaFor compiles the published schema of an object, as an editor or kubeconform does.
func schemaFor(t *testing.T, object map[string]any) *jsonschema.Schema {
	t.Helper()
	apiVersion, _ := object["apiVersion"].(string)
	kind, _ := object["kind"].(string)
	group, version, _ := strings.Cut(apiVersion, "/")
	schema, err := jsonschema.NewCompiler().Compile(filepath.Join(published, group, strings.ToLower(kind)+"_"+version+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// documents returns the objects of the samples that are of our Kinds.
func documents(t *testing.T) map[string]map[string]any {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(config, "*", "samples", "*_*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]map[string]any{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
			var object map[string]any
			if err := yaml.Unmarshal(document, &object); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			all[file] = object
		}
	}
	return all
}

func TestSamplesFollowTheSchemas(t *testing.T) {
	kinds := map[any]bool{}
	for file, object := range documents(t) {
		kinds[object["apiVersion"].(string)+object["kind"].(string)] = true
		if err := schemaFor(t, object).Validate(object); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	files, err := filepath.Glob(filepath.Join(published, "*", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(kinds) != len(files) {
		t.Errorf("%d Kinds have samples, %d have schemas", len(kinds), len(files))
	}
}

func TestMistakesAreFound(t *testing.T) {
	challenge := func() map[string]any {
		var object map[string]any
		if err := yaml.Unmarshal([]byte(`
apiVersion: berg.norelect.ch/v1
kind: Challenge
metadata: {name: a}
spec:
  author: a
  description: a
  containers:
  - hostname: web
    image: registry.example.com/a:1
    ports: [{name: web, port: 80, type: publicPort, appProtocol: http}]
`), &object); err != nil {
			t.Fatal(err)
		}
		return object
	}
	if err := schemaFor(t, challenge()).Validate(challenge()); err != nil {
		t.Fatal(err)
	}
	container := func(c map[string]any) map[string]any {
		return c["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)
	}
	port := func(c map[string]any) map[string]any { return container(c)["ports"].([]any)[0].(map[string]any) }
	for name, tc := range map[string]struct {
		spoil func(map[string]any)
		says  string
	}{
		"a field that does not exist": {func(c map[string]any) { container(c)["hostNetwork"] = true }, "hostNetwork"},
		"a field of another name":     {func(c map[string]any) { container(c)["envs"] = map[string]any{} }, "envs"},
		"a port out of range":         {func(c map[string]any) { port(c)["port"] = 70000 }, "/spec/containers/0/ports/0/port"},
		"a text for a number":         {func(c map[string]any) { port(c)["port"] = "80" }, "/spec/containers/0/ports/0/port"},
		"no image":                    {func(c map[string]any) { delete(container(c), "image") }, "image"},
		"another version":             {func(c map[string]any) { c["apiVersion"] = "berg.norelect.ch/v2" }, "/apiVersion"},
	} {
		t.Run(name, func(t *testing.T) {
			c := challenge()
			tc.spoil(c)
			if err := schemaFor(t, challenge()).Validate(c); err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%v, want %q in it", err, tc.says)
			}
		})
	}
}
