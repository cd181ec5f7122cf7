package manifests

import (
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/settings"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// loaded returns the default settings with an image and some changes.
func loaded(t *testing.T, changes ...string) config.Tunnel {
	t.Helper()
	var cfg config.Tunnel
	env := map[string]string{"TUNNEL_IMAGE": "example.com/berg-tunnel:1"}
	for _, c := range changes {
		name, set, _ := strings.Cut(c, "=")
		env[name] = set
	}
	if _, err := settings.Load("", []settings.Section{cfg.Section()}, nil, func(name string) string { return env[name] }, nil); err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestPlan(t *testing.T) {
	base := Inputs{
		UID: "0a1b", Name: "laptop", Aliases: []string{"web"}, Namespace: "development", OperatorNamespace: "operator",
		Image: "registry.example/proxy@sha256:1", Host: "node-1", Nodes: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("10.1.0.1")},
		Ports: []int32{8080, 9090}, Client: Endpoint{"10.1.0.7", 36672, 36673}, Config: loaded(t),
	}
	published := base
	published.Aliases, published.Ports, published.PullSecret = nil, nil, true
	published.HostPorts = HostPorts{28000, 28001}
	published.Client = Endpoint{"127.0.0.1", 28000, 28001}
	published.Config = loaded(t, "TUNNEL_PUBLISH=HostPort", "TUNNEL_PULL_SECRET=registry")
	node := base
	node.Config = loaded(t, "TUNNEL_PUBLISH=NodePort")
	// The longest name that is allowed.
	long := node
	long.Name, long.Aliases = strings.Repeat("long-name-", 6)+"end", nil
	// An image that the operator built is for one CPU architecture.
	built, builtHere := base, published
	built.Architecture, builtHere.Architecture = "arm64", "arm64"
	for name, in := range map[string]Inputs{
		"podip": base, "hostport": published, "nodeport": node, "nodeport-long": long, "built": built, "built-hostport": builtHere,
	} {
		p := New(in)
		objects := []client.Object{p.Policy}
		for _, s := range p.Services {
			if wrong := validation.IsDNS1035Label(s.Name); len(wrong) > 0 {
				t.Errorf("%s: no Service can be called %s: %v", name, s.Name, wrong)
			}
			objects = append(objects, s)
		}
		objects = append(objects, ClientPod(in), ServerPod(in))
		var text strings.Builder
		for _, o := range objects {
			encoded, err := yaml.Marshal(o)
			if err != nil {
				t.Fatal(err)
			}
			text.WriteString("---\n")
			text.Write(encoded)
		}
		golden := filepath.Join("testdata", name+".golden.yaml")
		if *update {
			if err := os.MkdirAll("testdata", 0o750); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(golden, []byte(text.String()), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), text.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
