package docs

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// rctfVersion is the newest release of rCTF with these providers of instances, and rctfProviders their names, as
// apps/api/src/providers/instancer/index.ts of that release lists them. The options are those that instancers/docker requires.
const rctfVersion = "2.1.2"

var (
	rctfProviders = []string{"instancers/docker", "instancers/k8s", "instancers/paradigmctf"}
	rctfOptions   = []string{"apiUrl", "authToken"}
)

// rCTF ignores a configuration that it does not know, without a word.
func TestTheGuideOfRCTFConfiguresAReleasedProvider(t *testing.T) {
	page := string(read(t, "docs/rctf.md"))
	block := regexp.MustCompile("(?s)\n```yaml\n(.*?)\n```\n").FindStringSubmatch(page)
	if block == nil || !strings.Contains(page, rctfVersion) {
		t.Fatalf("docs/rctf.md shows no configuration, or not that it is for rCTF %s", rctfVersion)
	}
	var configuration struct {
		Instancers map[string]struct {
			Name    string            `json:"name"`
			Options map[string]string `json:"options"`
		} `json:"instancers"`
	}
	if err := yaml.UnmarshalStrict([]byte(block[1]), &configuration); err != nil {
		t.Fatal(err)
	}
	if len(configuration.Instancers) != 1 { // several need defaultInstancer
		t.Errorf("%d instancers", len(configuration.Instancers))
	}
	for name, instancer := range configuration.Instancers {
		if instancer.Name != "instancers/docker" || !slices.Contains(rctfProviders, instancer.Name) {
			t.Errorf("%s: rCTF %s has %v, not %s", name, rctfVersion, rctfProviders, instancer.Name)
		}
		if got := slices.Sorted(maps.Keys(instancer.Options)); !slices.Equal(got, rctfOptions) {
			t.Errorf("%s: options %v, want %v", name, got, rctfOptions)
		}
	}
}
