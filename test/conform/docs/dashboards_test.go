package docs

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
)

var phaseSelector = regexp.MustCompile(`([a-z_]+)_(?:active|max_in_phase_seconds)\{[^}]*phase=~?\\"([^"\\]+)\\"`)

// A dashboard that selects a phase that there is not shows nothing, and that looks like all is well.
func TestDashboardsSelectPhasesThatExist(t *testing.T) {
	known := map[string][]string{
		"berg_challengeinstance": texts(bergv1.Phases), "hexactf_challenge": texts(hexactfv1.States), "quix_environment": texts(quixv1.Phases),
		"kibaship_project": texts(kibashipv1.ProjectPhases), "kibaship_application": texts(kibashipv1.ApplicationPhases),
		"kibaship_deployment": texts(kibashipv1.DeploymentPhases),
		"tunnel_network":      texts(tunnelv1.NetworkStates), "tunnel_proxy": texts(tunnelv1.States),
	}
	seen := map[string]bool{}
	for _, path := range glob(t, "config/*/grafana/*.json") {
		for _, m := range phaseSelector.FindAllStringSubmatch(string(read(t, path)), -1) {
			seen[m[1]] = true
			for phase := range strings.SplitSeq(m[2], "|") {
				if !slices.Contains(known[m[1]], phase) {
					t.Errorf("%s: %s has no phase %s, but %q", path, m[1], phase, known[m[1]])
				}
			}
		}
	}
	for name := range known {
		if !seen[name] {
			t.Errorf("no dashboard selects phases of %s", name)
		}
	}
}

func texts[T ~string](all []T) (out []string) {
	for _, one := range all {
		out = append(out, string(one))
	}
	return out
}
