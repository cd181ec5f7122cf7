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

// The author's text follows the Challenge as it is now. It shows no placeholder and no flag, and needs addresses.
func TestConnectionInfo(t *testing.T) {
	web := []bergv1.ServiceEndpoint{{Name: "web", Hostname: "ctf.example", Port: 30000, Protocol: "TCP"}}
	for name, tc := range map[string]struct {
		text, before string
		services     []bergv1.ServiceEndpoint
		gone         bool
		want         string
	}{
		"a text":                      {"nc {host} {port}", "", web, false, "nc ctf.example 30000"},
		"an edited text":              {"nc {web.host}", "nc old", web, false, "nc ctf.example"},
		"a port until the rollout":    {"nc {new.host}", "nc old", web, false, "nc old"},
		"none any more":               {"", "nc old", web, false, ""},
		"no address":                  {"nc {host}", "nc old", nil, false, ""},
		"a flag":                      {"nc {host}, flag{only_for_alice}, flag{of_all}", "", web, false, "nc ctf.example, <flag>, <flag>"},
		"the Challenge was deleted":   {"", "nc old", web, true, "nc old"},
		"a text without placeholders": {"ask in the chat", "", web, false, "ask in the chat"},
	} {
		out := Outcome{Observed: Observed{Candidate: Candidate{
			Instance: testInstance(func(i *bergv1.ChallengeInstance) {
				i.Status.Services, i.Status.ConnectionInfo, i.Spec.Flag = tc.services, tc.before, "flag{only_for_alice}"
			}),
			Challenge: &bergv1.Challenge{Spec: bergv1.ChallengeSpec{ConnectionInfo: tc.text, Flag: "flag{of_all}"}}, Pinned: &manifests.Snapshot{},
		}}}
		if tc.gone {
			out.Challenge = nil
		}
		if got := connectionInfo(out); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
