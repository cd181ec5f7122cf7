package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestRendersWhatOLMNeeds renders the chart of the pinned version.
func TestRendersWhatOLMNeeds(t *testing.T) {
	// The chart is no Go package: nothing else has the module downloaded for this test.
	download, err := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", "github.com/operator-framework/operator-lifecycle-manager").Output()
	if err != nil {
		t.Fatal(err)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(download, &module); err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	chart := filepath.Join(module.Dir, "deploy", "chart")
	if err := run(chart, "0.42.0", "example.test/olm:1", "example.test/opm:1", out); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(out, "olm.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	manifest := string(content)
	for _, want := range []string{
		"name: olm-operator\n", "name: catalog-operator\n", "name: packageserver\n", "name: global-operators\n",
		"version: 0.42.0\n", "image: example.test/olm:1\n", "--opmImage=example.test/opm:1\n", "replicas: 1\n",
	} {
		if !strings.Contains(manifest, want) {
			t.Errorf("olm.yaml lacks %q", want)
		}
	}
	for _, unwanted := range []string{"quay.io", "kind: CatalogSource", "kind: CustomResourceDefinition", "{{"} {
		if strings.Contains(manifest, unwanted) {
			t.Errorf("olm.yaml holds %q", unwanted)
		}
	}
	// Everything else is in a namespace that must be there before.
	if first, _, _ := strings.Cut(strings.TrimPrefix(manifest, "---\n"), "\n---"); !strings.Contains(first, "kind: Namespace") {
		t.Errorf("olm.yaml begins with\n%s", first)
	}
	definitions, err := filepath.Glob(filepath.Join(out, "crds", "*.yaml"))
	if err != nil || len(definitions) < 8 {
		t.Errorf("definitions: %v, %v; want eight or more", definitions, err)
	}
}
