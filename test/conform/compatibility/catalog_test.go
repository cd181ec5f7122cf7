package compatibility

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/blang/semver/v4"
	"sigs.k8s.io/yaml"
)

// A document of the catalog.
type document struct {
	Schema         string  `json:"schema"`
	Name           string  `json:"name"`
	Image          string  `json:"image"`
	DefaultChannel string  `json:"defaultChannel"`
	Entries        []entry `json:"entries"`
}

type entry struct {
	Name      string `json:"name"`
	Replaces  string `json:"replaces"`
	SkipRange string `json:"skipRange"`
}

func (e entry) version(t *testing.T) semver.Version {
	t.Helper()
	_, version, _ := strings.Cut(e.Name, ".v")
	return parseVersion(t, version)
}

func parseVersion(t *testing.T, text string) semver.Version {
	t.Helper()
	v, err := semver.Parse(text)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return v
}

// The version of the tree is the head of its channels, and every version that a
// cluster may have reaches it in one step.
func TestEveryVersionCanBeUpgraded(t *testing.T) {
	text, err := os.ReadFile("../../../hack/versions.mk")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^VERSION \?= (\S+)$`).FindSubmatch(text)
	if found == nil {
		t.Fatal("hack/versions.mk has no line VERSION ?=")
	}
	current := parseVersion(t, string(found[1]))
	catalogs, err := filepath.Glob("../../../catalog/*-operator")
	if err != nil || len(catalogs) != 5 {
		t.Fatalf("catalogs of packages are %q: %v, want five", catalogs, err)
	}
	for _, catalog := range catalogs {
		t.Run(filepath.Base(catalog), func(t *testing.T) { everyVersionCanBeUpgraded(t, catalog, current) })
	}
}

func everyVersionCanBeUpgraded(t *testing.T, catalog string, current semver.Version) {
	channels := map[string][]entry{}
	var defaultChannel string
	for _, d := range documents(t, filepath.Join(catalog, "catalog.yaml")) {
		switch d.Schema {
		case "olm.package":
			defaultChannel = d.DefaultChannel
		case "olm.channel":
			channels[d.Name] = d.Entries
		}
	}
	if defaultChannel != "stable" || len(channels["stable"]) == 0 || len(channels["candidate"]) == 0 || len(channels) != 2 {
		t.Fatalf("default channel %q of %d channels, want stable of candidate and stable", defaultChannel, len(channels))
	}

	var offered []string
	for name, entries := range channels {
		head := entries[len(entries)-1]
		if name == "candidate" || len(current.Pre) == 0 {
			if !head.version(t).EQ(current) {
				t.Errorf("channel %s ends in %s, not in %s: run make next-version", name, head.Name, current)
			}
		}
		for i, e := range entries {
			offered = append(offered, e.Name)
			if i == 0 {
				continue
			}
			if e.Replaces != entries[i-1].Name || e.version(t).LE(entries[i-1].version(t)) {
				t.Errorf("channel %s: %s replaces %q, want %s, a lower version", name, e.Name, e.Replaces, entries[i-1].Name)
			}
			skips, err := semver.ParseRange(e.SkipRange)
			if err != nil {
				t.Errorf("channel %s: %s has the skipRange %q: %v", name, e.Name, e.SkipRange, err)
				continue
			}
			for _, earlier := range entries[:i] {
				if !skips(earlier.version(t)) {
					t.Errorf("channel %s: %s cannot be upgraded to %s: it is not in %q", name, earlier.Name, e.Name, e.SkipRange)
				}
			}
			if skips(e.version(t)) {
				t.Errorf("channel %s: %s skips itself: %q", name, e.Name, e.SkipRange)
			}
		}
	}
	slices.Sort(offered)
	offered = slices.Compact(offered)

	// What is offered is there, and what is there is offered.
	var there []string
	files, err := filepath.Glob(filepath.Join(catalog, "bundles", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		for _, d := range documents(t, file) {
			there = append(there, d.Name)
			if want := filepath.Base(catalog) + "." + strings.TrimSuffix(filepath.Base(file), ".yaml"); d.Schema != "olm.bundle" || d.Name != want {
				t.Errorf("%s holds %s %s, want olm.bundle %s", file, d.Schema, d.Name, want)
			}
			if !regexp.MustCompile(`:v\d|@sha256:`).MatchString(d.Image) {
				t.Errorf("%s: the image %q is not pinned", file, d.Image)
			}
		}
	}
	slices.Sort(there)
	if !slices.Equal(offered, there) {
		t.Errorf("channels offer %q, bundles are there of %q", offered, there)
	}
}

func documents(t *testing.T, file string) []document {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []document
	for part := range strings.SplitSeq(string(text), "\n---\n") {
		part = strings.TrimPrefix(part, "---\n")
		if strings.TrimSpace(part) == "" {
			continue
		}
		var d document
		if err := yaml.Unmarshal([]byte(part), &d); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, d)
	}
	return all
}
