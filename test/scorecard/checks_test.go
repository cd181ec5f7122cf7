package main

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/operator-framework/api/pkg/apis/scorecard/v1alpha3"
	"sigs.k8s.io/yaml"
)

const root = "../.."

// folders are those of the bundles of all packages, by the package.
func folders(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{"berg-operator": filepath.Join(root, "bundle")}
	others, err := filepath.Glob(filepath.Join(root, "deploy", "packages", "*", "bundle"))
	if err != nil || len(others) != 4 {
		t.Fatalf("the other packages are %q: %v", others, err)
	}
	for _, folder := range others {
		all[filepath.Base(filepath.Dir(folder))] = folder
	}
	return all
}

func loadOurs(t *testing.T, name string) bundle {
	t.Helper()
	b, err := load(folders(t)[name])
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestOurBundlesPass(t *testing.T) {
	for name, folder := range folders(t) {
		for _, r := range checkBundle(folder).Results {
			if r.State != v1alpha3.PassState {
				t.Errorf("%s: %s: %s: %s", name, r.Name, r.State, strings.Join(r.Errors, "\n\t"))
			}
		}
	}
}

// The packages may be installed next to each other, also in one namespace: no two have an object, a lease or a selector in common.
func TestPackagesShareNothing(t *testing.T) {
	seen := map[string]string{}
	for name, folder := range folders(t) {
		b := loadOurs(t, name)
		if b.name() != name {
			t.Errorf("%s is of the package %s", folder, b.name())
		}
		claim := func(kind, what string) {
			if other, taken := seen[kind+" "+what]; taken {
				t.Errorf("%s and %s both have the %s %s", name, other, kind, what)
			}
			seen[kind+" "+what] = name
		}
		claim("API group", b.api())
		claim("lease", b.lease())
		var own []string // the names by which a package selects its pods
		for _, d := range b.csv.Spec.InstallStrategy.StrategySpec.DeploymentSpecs {
			claim("Deployment", d.Name)
			claim("labels", fmt.Sprint(d.Spec.Selector.MatchLabels))
			claim("ServiceAccount", d.Spec.Template.Spec.ServiceAccountName)
			own = append(own, d.Spec.Selector.MatchLabels["app.kubernetes.io/name"])
		}
		claim("display name", b.csv.Spec.DisplayName)
		claim("icon", b.csv.Spec.Icon[0].Data)
		files, err := filepath.Glob(filepath.Join(folder, "manifests", "*.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var object struct {
				Kind     string
				Metadata struct{ Name string }
				Spec     struct {
					Selector    map[string]any
					PodSelector map[string]any
				}
			}
			if err := yaml.Unmarshal(text, &object); err != nil {
				t.Fatal(err)
			}
			claim(object.Kind, object.Metadata.Name)
			selector := fmt.Sprint(object.Spec.Selector, object.Spec.PodSelector)
			if slices.Contains([]string{"Service", "PodDisruptionBudget", "NetworkPolicy"}, object.Kind) && !selectsOne(selector, own) {
				t.Errorf("%s selects %s, not the pods of %s alone", file, selector, name)
			}
		}
	}
}

// selectsOne reports whether a selector, as it is printed, names one of some programs.
func selectsOne(selector string, programs []string) bool {
	return slices.ContainsFunc(programs, func(name string) bool {
		_, rest, found := strings.Cut(selector, "app.kubernetes.io/name:"+name)
		return found && (rest[0] == ' ' || rest[0] == ']')
	})
}

// The catalog offers each bundle, in a channel that its package knows.
func TestCatalogOffersTheBundles(t *testing.T) {
	for name := range folders(t) {
		b := loadOurs(t, name)
		var channels []string
		defaultChannel, offered := "", false
		for _, doc := range documents(t, filepath.Join(root, "catalog", name, "catalog.yaml")) {
			var entry struct {
				Schema, Name, DefaultChannel string
				Icon                         struct{ Base64data string }
				Entries                      []struct{ Name string }
			}
			if err := yaml.Unmarshal(doc, &entry); err != nil {
				t.Fatal(err)
			}
			switch entry.Schema {
			case "olm.package":
				defaultChannel = entry.DefaultChannel
				if entry.Icon.Base64data != b.csv.Spec.Icon[0].Data {
					t.Errorf("%s: the package's icon is not that of the bundle", name)
				}
			case "olm.channel":
				channels = append(channels, entry.Name)
				for _, e := range entry.Entries {
					offered = offered || e.Name == b.csv.Name
				}
			}
		}
		if !slices.Contains(channels, defaultChannel) {
			t.Errorf("%s: the default channel %q is not among the channels %q", name, defaultChannel, channels)
		}
		if !offered {
			t.Errorf("no channel offers %s: add it to catalog/templates/%s.yaml", b.csv.Name, name)
		}
	}
}

func TestIconsAreTheDrawings(t *testing.T) {
	drawings, err := filepath.Glob(filepath.Join(root, "config", "packages", "*", "icon.svg"))
	if err != nil || len(drawings) != 4 {
		t.Fatalf("the drawings are %q: %v", drawings, err)
	}
	for _, file := range append(drawings, filepath.Join(root, "config", "manifests", "icon.svg")) {
		drawing, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, name, _ := strings.Cut(string(drawing), "<title>")
		name, _, _ = strings.Cut(name, "</title>")
		icons := loadOurs(t, name).csv.Spec.Icon
		if len(icons) != 1 || icons[0].Data != base64.StdEncoding.EncodeToString(drawing) {
			t.Errorf("the icon of %s is not %s: put its base64 form into bases next to it and into catalog/templates/%s.yaml", name, file, name)
		}
	}
}

// What a registry says of a bundle must be what the bundle says of itself.
func TestImageLabelsAreTheAnnotations(t *testing.T) {
	for _, folder := range folders(t) {
		text, err := os.ReadFile(filepath.Join(folder, "metadata", "annotations.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var metadata struct {
			Annotations map[string]string `json:"annotations"`
		}
		if err := yaml.Unmarshal(text, &metadata); err != nil {
			t.Fatal(err)
		}
		dockerfile, err := os.ReadFile(folder + ".Dockerfile")
		if err != nil {
			t.Fatal(err)
		}
		labels := map[string]string{}
		for line := range strings.Lines(string(dockerfile)) {
			if label, ok := strings.CutPrefix(strings.TrimSpace(line), "LABEL "); ok {
				key, value, _ := strings.Cut(label, "=")
				labels[key] = value
			}
		}
		if got, want := fmt.Sprint(labels), fmt.Sprint(metadata.Annotations); got != want {
			t.Errorf("labels of %s.Dockerfile:\n%s\nannotations:\n%s", folder, got, want)
		}
	}
}

func documents(t *testing.T, file string) [][]byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var docs [][]byte
	for doc := range strings.SplitSeq(string(text), "---\n") {
		if strings.TrimSpace(doc) != "" {
			docs = append(docs, []byte(doc))
		}
	}
	return docs
}
