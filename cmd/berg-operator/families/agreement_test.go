// The documents and manifests that an administrator reads agree with the settings.
package families_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"github.com/bergctf/berg-operator/cmd/berg-operator/families"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/settings"
	"github.com/bergctf/berg-operator/internal/operator"
)

var update = flag.Bool("update", false, "rewrite the page that administrators read")

var shown = regexp.MustCompile(`(?s)<!-- settings:begin -->\n.*<!-- settings:end -->`)

// sections are the tables of all families and of the process.
func sections() []settings.Section { return operator.Sections(new(config.Process), families.All()) }

// What an administrator reads is the table that the operator follows: run with -update to
// write it.
func TestPageShowsTheSettings(t *testing.T) {
	const path = "../../../docs/settings.md"
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !shown.Match(page) {
		t.Fatalf("%s has no place for the settings", path)
	}
	want := shown.ReplaceAllLiteral(page, []byte(markdown()))
	if *update {
		if err := os.WriteFile(path, want, 0o600); err != nil {
			t.Fatal(err)
		}
	} else if !bytes.Equal(page, want) {
		t.Errorf("%s differs from the settings: run go test ./cmd/berg-operator/families -update", path)
	}
}

func markdown() string {
	var b strings.Builder
	b.WriteString("<!-- settings:begin -->\n")
	escaped := strings.NewReplacer("<", "&lt;", ">", "&gt;")
	for _, section := range sections() {
		fmt.Fprintf(&b, "## %s\n\n| variable | default | what it does |\n| --- | --- | --- |\n", section.Title)
		for _, s := range section.Settings {
			value := "empty"
			if s.Default != "" {
				value = "`" + s.Default + "`"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", s.Name, value, escaped.Replace(s.Help))
		}
		b.WriteString("\n")
	}
	b.WriteString("<!-- settings:end -->")
	return b.String()
}

// Two families cannot have a setting of the same name: one would get what is meant for the other.
func TestNamesOfSettingsAreUnique(t *testing.T) {
	seen := map[string]string{}
	for _, section := range sections() {
		for _, s := range section.Settings {
			if other, twice := seen[s.Name]; twice {
				t.Errorf("%s is a setting of %s and of %s", s.Name, other, section.Title)
			}
			seen[s.Name] = section.Title
		}
	}
}

func rows() (rows [][]settings.Setting) {
	for _, section := range sections() {
		rows = append(rows, section.Settings)
	}
	return rows
}

// The deployed manifest lists every variable with its default, so that it is
// found there, and no other.
func TestManifestListsTheTable(t *testing.T) {
	data, err := os.ReadFile("../../../config/manager/manager.yaml")
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
	for _, v := range slices.Concat(rows()...) {
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
