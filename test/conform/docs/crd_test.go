package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/bergctf/berg-operator/cmd/berg-operator/families"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/operator"
)

// schema is the part of an OpenAPI schema that kubectl explain shows.
type schema struct {
	Description string            `json:"description"`
	Properties  map[string]schema `json:"properties"`
	Items       *schema           `json:"items"`
}

type definition struct {
	Spec struct {
		Scope string `json:"scope"`
		Names struct {
			Kind       string   `json:"kind"`
			ShortNames []string `json:"shortNames"`
			Categories []string `json:"categories"`
		} `json:"names"`
		Versions []struct {
			Name    string `json:"name"`
			Columns []struct {
				Name     string `json:"name"`
				Type     string `json:"type"`
				JSONPath string `json:"jsonPath"`
				Priority int    `json:"priority"`
			} `json:"additionalPrinterColumns"`
			Schema struct {
				OpenAPIV3Schema schema `json:"openAPIV3Schema"`
			} `json:"schema"`
		} `json:"versions"`
	} `json:"spec"`
}

// definitions are those of all families, by kind. Where a second family has a kind of that
// name its own is <family>/<kind>.
func definitions(t *testing.T) map[string]definition {
	t.Helper()
	out := map[string]definition{}
	for _, path := range glob(t, "config/*/crd/bases/*.yaml") {
		var d definition
		if err := yaml.Unmarshal(read(t, path), &d); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		name := d.Spec.Names.Kind
		if _, taken := out[name]; taken {
			name = strings.Split(path, "/")[1] + "/" + name
		}
		out[name] = d
	}
	for _, kind := range []string{"Challenge", "ChallengeInstance"} {
		if len(out[kind].Spec.Versions) == 0 {
			t.Fatalf("no definition of %s among %d files", kind, len(out))
		}
	}
	return out
}

// walk calls visit for every property below a schema, with its path.
func walk(path string, s schema, visit func(path, name string, s schema)) {
	for name, property := range s.Properties {
		at := path + "." + name
		visit(at, name, property)
		walk(at, property, visit)
	}
	if s.Items != nil {
		walk(path+"[]", *s.Items, visit)
	}
}

// eachField calls check for every field of our own: those of core/v1 and
// meta/v1 keep the words of Kubernetes.
func eachField(t *testing.T, check func(path, name, description string)) {
	t.Helper()
	count := 0
	for kind, d := range definitions(t) {
		for _, v := range d.Spec.Versions {
			walk(kind, v.Schema.OpenAPIV3Schema, func(path, name string, s schema) {
				if strings.Contains(path, "Probe.") || path == kind+".metadata" ||
					strings.Contains(path, ".template.spec.containers[].") || strings.Contains(path, ".service.spec.") {
					return
				}
				count++
				check(path, name, s.Description)
			})
		}
	}
	if count < 60 {
		t.Fatalf("only %d fields found", count)
	}
}

// shortest is how many characters a description needs to say more than a name.
const shortest = 15

func TestEveryFieldIsDescribed(t *testing.T) {
	words := regexp.MustCompile(`[a-z]+`)
	eachField(t, func(path, name, description string) {
		if len(description) < shortest {
			t.Errorf("%s: description %q: say what it is, with unit, default and rule", path, description)
		}
		// "The name of the container" tells nothing that containers[].name does not.
		known := words.FindAllString(strings.ToLower(path), -1)
		if !slices.ContainsFunc(words.FindAllString(strings.ToLower(description), -1), func(w string) bool {
			return len(w) > 3 && !slices.Contains(known, w) && !slices.Contains(known, w+"s")
		}) {
			t.Errorf("%s: description %q only repeats the field's name", path, description)
		}
		if !strings.HasSuffix(strings.TrimSpace(description), ".") && !strings.Contains(description, "https://") {
			t.Errorf("%s: description %q is not a sentence", path, description)
		}
	})
}

// variable is a setting of the operator in a text, with its default if given.
var variable = regexp.MustCompile(`\b((?:CHALLENGE|GATEWAY|PULL|NETWORK|CLUSTER)_[A-Z_]+)(?:\s+\(([^)]+)\))?`)

func TestSettingsInDescriptionsExistAndTellTheirDefault(t *testing.T) {
	defaults := map[string]string{
		"CHALLENGE_NAMESPACE": "", // of the container: not a setting of the operator alone
	}
	for _, section := range operator.Sections(new(config.Process), families.All()) {
		for _, v := range section.Settings {
			defaults[v.Name] = v.Default
		}
	}
	documented := 0
	eachField(t, func(path, _, description string) {
		for _, m := range variable.FindAllStringSubmatch(description, -1) {
			value, exists := defaults[m[1]]
			if !exists {
				t.Errorf("%s: there is no setting %s", path, m[1])
			}
			if m[2] == "" {
				continue
			}
			documented++
			if m[2] != value {
				t.Errorf("%s: says that the default of %s is %q, but it is %q", path, m[1], m[2], value)
			}
		}
	})
	if documented < 6 {
		t.Errorf("only %d defaults are stated", documented)
	}
}

func TestOptionalFieldsWithADefaultTellIt(t *testing.T) {
	want := []string{
		"Challenge.spec.allowOutboundTraffic", "Challenge.spec.containers[].resourceRequests",
		"Challenge.spec.containers[].resourceLimits", "Challenge.spec.containers[].readinessProbe",
		"Challenge.spec.containers[].livenessProbe", "Challenge.spec.containers[].runtimeClassName",
		"Challenge.spec.containers[].egressBandwidth", "Challenge.spec.containers[].ingressBandwidth",
		"Challenge.spec.containers[].dynamicFlag", "Challenge.spec.containers[].dynamicFlag.content.mode",
		"Challenge.spec.containers[].dynamicFlag.executable.mode", "Challenge.spec.containers[].ports[].name",
		"Challenge.spec.containers[].ports[].protocol", "Challenge.spec.containers[].ports[].type",
		"Challenge.spec.displayName", "ChallengeInstance.spec.challengeRef.namespace",
		"ChallengeInstance.spec.timeout", "ChallengeInstance.spec.terminationReason",
	}
	eachField(t, func(path, _, description string) {
		at := slices.Index(want, path)
		if at < 0 {
			return
		}
		want = slices.Delete(want, at, at+1)
		if !strings.Contains(strings.ToLower(description), "default") {
			t.Errorf("%s: description %q does not tell the default", path, description)
		}
	})
	if len(want) > 0 {
		t.Errorf("no such field: %s", strings.Join(want, ", "))
	}
}

func TestNamesAndColumns(t *testing.T) {
	tests := map[string]struct {
		shortNames string
		columns    string
	}{
		"Challenge": {
			shortNames: "chall",
			columns: "Event:string:.spec.event Category:string:.spec.categories[0] Author:string:.spec.author " +
				"Outbound Traffic:boolean:.spec.allowOutboundTraffic Hidden Until:date:.spec.hideUntil " +
				`Accepted:string:.status.conditions[?(@.type=="Accepted")].reason [Images:string:.status.conditions[?(@.type=="ImagesReady")].reason] ` +
				`[Ready:string:.status.conditions[?(@.type=="Ready")].status]`,
		},
		"ChallengeInstance": {
			shortNames: "ci instance",
			columns: "Challenge:string:.spec.challengeRef.name [Owner:string:.spec.ownerId] Phase:string:.status.phase Cause:string:.status.cause " +
				"Address:string:.status.services[0].url [Namespace:string:.status.namespace] " +
				"Age:date:.metadata.creationTimestamp [Expires:string:.status.expiresAt] " +
				`[Ready:string:.status.conditions[?(@.type=="Ready")].status]`,
		},
	}
	for kind, want := range tests {
		t.Run(kind, func(t *testing.T) {
			d := definitions(t)[kind].Spec
			if d.Scope != "Namespaced" {
				t.Errorf("scope is %s", d.Scope)
			}
			if got := strings.Join(d.Names.ShortNames, " "); got != want.shortNames {
				t.Errorf("short names are %q, want %q", got, want.shortNames)
			}
			if got := strings.Join(d.Names.Categories, " "); got != "all" {
				t.Errorf("categories are %q, want all", got)
			}
			var columns []string
			for _, c := range d.Versions[0].Columns {
				column := c.Name + ":" + c.Type + ":" + c.JSONPath
				if c.Priority > 0 { // kubectl shows it with -o wide
					column = "[" + column + "]"
				}
				columns = append(columns, column)
			}
			if got := strings.Join(columns, " "); got != want.columns {
				t.Errorf("columns are\n%s\nwant\n%s", got, want.columns)
			}
		})
	}
}

// root is the repository, seen from this package.
const root = "../../.."

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// glob returns the files of a pattern relative to the repository; there must be
// some.
func glob(t *testing.T, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, pattern))
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) == 0 {
		t.Fatalf("no file matches %s", pattern)
	}
	for i, p := range paths {
		if paths[i], err = filepath.Rel(root, p); err != nil {
			t.Fatal(err)
		}
	}
	return paths
}
