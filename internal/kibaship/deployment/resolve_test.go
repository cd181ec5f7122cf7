package deployment

import (
	"net/netip"
	"testing"

	"github.com/bergctf/berg-operator/internal/config"
)

func TestRegistriesThatAreAsked(t *testing.T) {
	private, public := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("93.184.216.34")
	for name, tc := range map[string]struct {
		builds          string
		listed          []string
		host            string
		private, public bool
	}{
		"any":                          {"", nil, "registry.example.org", false, true},
		"the one that is built for":    {"registry.example.org:5000/kibaship", nil, "registry.example.org:5000", true, true},
		"another port":                 {"registry.example.org:5000/kibaship", nil, "registry.example.org", false, true},
		"a listed one":                 {"", []string{"a.example", "registry.example.org:5000"}, "registry.example.org:5000", true, true},
		"Docker Hub, listed":           {"", []string{"docker.io"}, "index.docker.io", true, true},
		"not listed":                   {"", []string{"a.example"}, "registry.example.org", false, false},
		"built for, and others listed": {"registry.example.org/kibaship", []string{"a.example"}, "registry.example.org", true, true},
	} {
		r := &Reconciler{Config: config.KibaShip{ImageRegistries: tc.listed, Builds: config.Builds{Registry: tc.builds}}}
		reach := r.registryReach(tc.host)
		if reach == nil {
			if tc.private || tc.public {
				t.Errorf("%s: is not asked", name)
			}
			continue
		}
		if reach(private) != tc.private || reach(public) != tc.public {
			t.Errorf("%s: private %t, public %t", name, reach(private), reach(public))
		}
	}
}
