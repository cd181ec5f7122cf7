package status

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
)

// Endpoints that are not known yet leave what was told; known ones replace it, also
// by nothing.
func TestServicesArePublishedOnceKnown(t *testing.T) {
	before := []bergv1.ServiceEndpoint{{Name: "game", Hostname: "ctf.example", Port: 30000, Protocol: "TCP"}}
	after := bergv1.ServiceEndpoint{Name: "play", Hostname: "ctf.example", Port: 30001, Protocol: "TCP"}
	for name, tc := range map[string]struct {
		endpoints []manifests.Endpoint
		want      []bergv1.ServiceEndpoint
	}{
		"not known":     {nil, before},
		"none":          {[]manifests.Endpoint{}, nil},
		"internal only": {[]manifests.Endpoint{{Variable: "DB_ENDPOINT", Address: "db:5432"}}, nil},
		"another":       {[]manifests.Endpoint{{Service: &after}}, []bergv1.ServiceEndpoint{after}},
	} {
		out := Outcome{
			Observed:  Observed{Candidate: Candidate{Instance: testInstance(func(i *bergv1.ChallengeInstance) { i.Status.Services = before }), Pinned: &manifests.Snapshot{}}},
			Endpoints: tc.endpoints,
		}
		compute(out, testConfig(t, nil).Challenge, noon)
		if diff := cmp.Diff(tc.want, out.Instance.Status.Services); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
