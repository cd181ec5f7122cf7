// The documents and manifests for administrators agree with the settings.
package families_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/bergctf/berg-operator/cmd/berg-operator/families"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/settings"
	"github.com/bergctf/berg-operator/internal/operator"
)

var update = flag.Bool("update", false, "rewrite the pages that administrators read")

// sections are the tables of all families and of the process.
func sections() []settings.Section { return operator.Sections(new(config.Process), families.All()) }

// The page shows the tables that the operator reads: run with -update to write it.
func TestPageShowsTheSettings(t *testing.T) { shows(t, "docs/settings.md", "settings", markdown()) }

// The index of the pages names each family's own; run with -update to write it.
func TestIndexNamesTheFamilies(t *testing.T) {
	var list strings.Builder
	indexes, err := filepath.Glob("../../../docs/*/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, index := range indexes {
		folder := filepath.Base(filepath.Dir(index))
		if _, err := os.Stat(filepath.Join("../../../api", folder)); err != nil {
			continue // decisions, runbooks
		}
		page, err := os.ReadFile(index)
		if err != nil {
			t.Fatal(err)
		}
		title, _, _ := strings.Cut(strings.TrimPrefix(string(page), "# "), "\n")
		fmt.Fprintf(&list, "- [%s](%s/README.md)\n", title, folder)
	}
	for _, f := range families.All() {
		if !strings.Contains(list.String(), "`"+f.API+"`") {
			t.Errorf("no docs/<family>/README.md has %s in its title", f.API)
		}
	}
	shows(t, "docs/README.md", "families", list.String())
}

// shows compares the text between two marks of a page with the expected text, and writes it
// with -update.
func shows(t *testing.T, path, mark, want string) {
	t.Helper()
	file := filepath.Join("../../..", path)
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	first, last := "<!-- "+mark+":begin -->\n", "<!-- "+mark+":end -->"
	before, rest, ok := strings.Cut(string(page), first)
	got, after, closed := strings.Cut(rest, last)
	switch {
	case !ok || !closed:
		t.Fatalf("%s has no place for the %s", path, mark)
	case got == want:
	case *update:
		if err := os.WriteFile(file, []byte(before+first+want+last+after), 0o600); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s differs from the %s: run go test ./cmd/berg-operator/families -update", path, mark)
	}
}

func markdown() string {
	var b strings.Builder
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
	return b.String()
}

// Two families must not have a setting of the same name: one would get the value for the other.
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

// The deployed manifests list every variable with its default, in the order of its table, and no
// other variables: those of the process in its Deployment, those of a family in the patch of its
// folder.
func TestManifestsListTheSettings(t *testing.T) {
	files, err := filepath.Glob("../../../config/*/settings.yaml")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string][]corev1.EnvVar{} // by the first variable of a file
	for _, file := range append(files, "../../../config/manager/manager.yaml") {
		env := variables(t, file)
		listed[env[0].Name] = env
	}
	for _, section := range sections() {
		first := section.Settings[0].Name
		var got, want []string
		for _, e := range listed[first] {
			if e.ValueFrom != nil {
				e.Value = e.ValueFrom.FieldRef.FieldPath
			}
			got = append(got, e.Name+"="+e.Value)
		}
		for _, s := range section.Settings {
			value := s.Default
			if s.Name == "POD_NAMESPACE" {
				value = "metadata.namespace"
			}
			want = append(want, s.Name+"="+value)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: the file that begins with %s sets\n%q\nwant\n%q", section.Title, first, got, want)
		}
		delete(listed, first)
	}
	for first := range listed {
		t.Errorf("the file that begins with %s is of no family", first)
	}
}

// variables returns those of the operator in a file with its Deployment, or a part of that.
func variables(t *testing.T, file string) []corev1.EnvVar {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for doc := range strings.SplitSeq(string(data), "\n---\n") {
		if !strings.Contains(doc, "\nkind: Deployment\n") {
			continue
		}
		var deployment appsv1.Deployment
		if err := yaml.UnmarshalStrict([]byte(doc), &deployment); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		containers := deployment.Spec.Template.Spec.Containers
		if len(containers) == 1 && len(containers[0].Env) > 0 {
			return containers[0].Env
		}
	}
	t.Fatalf("%s: no Deployment of one container with variables", file)
	return nil
}

// The description of each bundle shows some rows of the page.
func TestDescriptionsShowRowsOfThePage(t *testing.T) {
	bases, err := filepath.Glob("../../../config/packages/*/bases/*.yaml")
	if err != nil || len(bases) != len(families.All())-1 {
		t.Fatalf("the packages in addition to berg-operator are %q: %v, want one for each family", bases, err)
	}
	all := strings.Split(markdown(), "\n")
	for _, path := range append(bases, "../../../config/manifests/bases/berg-operator.clusterserviceversion.yaml") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		shown := regexp.MustCompile("(?m)^ *(\\| `[A-Z_]+` \\| .* \\|)$").FindAllSubmatch(text, -1)
		if len(shown) < 4 || len(shown) > 5 {
			t.Errorf("%s shows %d settings instead of the four or five that most installations change", path, len(shown))
		}
		for _, m := range shown {
			if !slices.Contains(all, string(m[1])) {
				t.Errorf("%s shows %q, which differs from docs/settings.md", path, m[1])
			}
		}
	}
}
