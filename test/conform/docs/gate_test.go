package docs

import (
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/bergctf/berg-operator/internal/gate"
)

// The class of the gate claims what its published report has proven, and the page lists it.
func TestTheGateClaimsWhatItsReportProves(t *testing.T) {
	type result struct {
		Result            string
		SupportedFeatures []string
	}
	var report struct {
		Profiles []struct {
			Name           string
			Core, Extended result
		}
	}
	if err := yaml.Unmarshal(read(t, "docs/berg/gate-conformance.yaml"), &report); err != nil {
		t.Fatal(err)
	}
	page := string(read(t, "docs/berg/gate.md"))
	proven := []string{"Gateway", "HTTPRoute", "ReferenceGrant", "TLSRoute"} // the core of both profiles
	for _, profile := range report.Profiles {
		if profile.Core.Result != "success" || profile.Extended.Result != "success" {
			t.Errorf("profile %+v", profile)
		}
		proven = append(proven, profile.Extended.SupportedFeatures...)
		row := "| `" + profile.Name + "` | `" + strings.Join(profile.Extended.SupportedFeatures, "`, `") + "` |"
		if !strings.Contains(page, row) {
			t.Errorf("docs/berg/gate.md does not have the row %s", row)
		}
	}
	slices.Sort(proven)
	proven = slices.Compact(proven)
	claimed := make([]string, 0, len(gate.Features))
	for _, feature := range gate.Features {
		claimed = append(claimed, string(feature))
	}
	if slices.Sort(claimed); !slices.Equal(claimed, proven) {
		t.Errorf("the class claims %v, and the report proves %v", claimed, proven)
	}
}
