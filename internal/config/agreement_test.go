package config

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "rewrite the tables that administrators read")

var shownTable = regexp.MustCompile(`(?s)<!-- configuration:begin -->\n.*<!-- configuration:end -->`)

// What an administrator reads, on the web and in the catalog, is the table that
// the operator follows.
func TestDocumentsShowTheTable(t *testing.T) {
	for path, indent := range map[string]string{
		"../../README.md": "",
		"../../config/manifests/bases/berg-operator.clusterserviceversion.yaml": "    ",
	} {
		document, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !shownTable.Match(document) {
			t.Errorf("%s has no place for the table", path)
			continue
		}
		table := strings.ReplaceAll(markdown(), "\n", "\n"+indent)
		want := shownTable.ReplaceAllLiteral(document, []byte(table))
		if *update {
			if err := os.WriteFile(path, want, 0o600); err != nil {
				t.Fatal(err)
			}
		} else if !bytes.Equal(document, want) {
			t.Errorf("%s differs from the table: run go test ./internal/config -update", path)
		}
	}
}

func markdown() string {
	var b strings.Builder
	b.WriteString("<!-- configuration:begin -->\n| variable | default | what it does |\n| --- | --- | --- |\n")
	for _, v := range Variables() {
		value := "empty"
		if v.Default != "" {
			value = "`" + v.Default + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", v.Name, value, strings.NewReplacer("<", "&lt;", ">", "&gt;").Replace(v.Help))
	}
	b.WriteString("<!-- configuration:end -->")
	return b.String()
}

// The deployed manifest lists every variable with its default, so that it is
// found there, and no other.
func TestManifestListsTheTable(t *testing.T) {
	data, err := os.ReadFile("../../config/manager/manager.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var deployment appsv1.Deployment
	for doc := range strings.SplitSeq(string(data), "\n---\n") {
		if strings.Contains(doc, "\nkind: Deployment\n") {
			if err := yaml.UnmarshalStrict([]byte(doc), &deployment); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(deployment.Spec.Template.Spec.Containers) != 1 {
		t.Fatal("no Deployment of one container in manager.yaml")
	}
	env := deployment.Spec.Template.Spec.Containers[0].Env
	byName := map[string]string{}
	for _, e := range env {
		byName[e.Name] = e.Value
		if e.ValueFrom != nil {
			byName[e.Name] = e.ValueFrom.FieldRef.FieldPath
		}
	}
	for _, v := range Variables() {
		want := v.Default
		if v.Name == "POD_NAMESPACE" {
			want = "metadata.namespace"
		}
		got, ok := byName[v.Name]
		if !ok || got != want {
			t.Errorf("manager.yaml has %s=%q (listed: %v), want %q", v.Name, got, ok, want)
		}
		delete(byName, v.Name)
	}
	for name := range byName {
		t.Errorf("manager.yaml sets %s, which the operator does not know", name)
	}
}
