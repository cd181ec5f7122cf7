package docs

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/settings"
)

const sampleGateway = "config/berg/samples/prerequisites/gateway.yaml"

// What players are told is what the sample does, once its reader has followed the
// README, or the page about OLM.
func TestReadmeMakesTheSampleGatewayTrue(t *testing.T) {
	var gateway gatewayv1.Gateway
	if err := yaml.UnmarshalStrict(read(t, sampleGateway), &gateway); err != nil {
		t.Fatal(err)
	}
	listeners := map[string]gatewayv1.Listener{}
	for _, l := range gateway.Spec.Listeners {
		listeners[string(l.Name)] = l
	}
	for way, env := range map[string]map[string]string{
		"Deployment": assignments(t, `set env deployment/berg-operator-controller-manager (CHALLENGE_DOMAIN=.*)`),
		"OLM":        subscribed(t),
	} {
		var cfg config.Berg
		sections := []settings.Section{cfg.Section()}
		if _, err := settings.Load("", sections, nil, func(name string) string { return env[name] }, nil); err != nil {
			t.Fatal(err)
		}
		if warnings := settings.Warnings(sections); len(warnings) > 0 {
			t.Errorf("%s: %v", way, warnings)
		}
		if gateway.Name != cfg.Gateway.Name || gateway.Namespace != cfg.Gateway.Namespace {
			t.Errorf("%s: the operator looks for %s/%s", way, cfg.Gateway.Namespace, cfg.Gateway.Name)
		}
		for _, want := range []struct {
			listener string
			port     int32
			protocol gatewayv1.ProtocolType
		}{
			{cfg.Gateway.HTTPListener, cfg.Challenge.HTTPPort, map[bool]gatewayv1.ProtocolType{true: gatewayv1.HTTPSProtocolType, false: gatewayv1.HTTPProtocolType}[cfg.Challenge.UsesHTTPS()]},
			{cfg.Gateway.TLSListener, cfg.Challenge.TLSPort, gatewayv1.TLSProtocolType},
		} {
			l, ok := listeners[want.listener]
			if !ok || l.Port != want.port || l.Protocol != want.protocol || string(*l.Hostname) != "*."+cfg.Challenge.Domain {
				t.Errorf("%s: the operator tells of %+v, the sample has %+v", way, want, l)
			}
		}
	}
	// The journeys and the demo run with them too.
	ports := regexp.MustCompile(`CHALLENGE_HTTP_PORT=\d+ CHALLENGE_TLS_PORT=\d+`)
	want := ports.FindString(string(read(t, "README.md")))
	for _, file := range []string{"hack/make/journeys.mk", sampleGateway, "hack/demo"} {
		if text := string(read(t, file)); ports.FindString(text) != want {
			t.Errorf("%s has %q, README.md %q", file, ports.FindString(text), want)
		}
	}
}

// assignments are those of a command of the README.
func assignments(t *testing.T, command string) map[string]string {
	t.Helper()
	m := regexp.MustCompile(command).FindStringSubmatch(string(read(t, "README.md")))
	if m == nil {
		t.Fatalf("README.md has no %s", command)
	}
	env := map[string]string{}
	for _, assignment := range strings.Fields(m[1]) {
		name, value, _ := strings.Cut(assignment, "=")
		env[name] = value
	}
	return env
}

// subscribed are the variables that docs/olm.md sets in the Subscription.
func subscribed(t *testing.T) map[string]string {
	t.Helper()
	m := regexp.MustCompile(`patch subscription berg-operator --type merge -p '(.*)'`).FindSubmatch(read(t, "docs/olm.md"))
	if m == nil {
		t.Fatal("docs/olm.md patches no Subscription")
	}
	var patch struct {
		Spec struct {
			Config struct {
				Env []struct{ Name, Value string } `json:"env"`
			} `json:"config"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(m[1], &patch); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{}
	for _, v := range patch.Spec.Config.Env {
		env[v.Name] = v.Value
	}
	return env
}

// The command of the README makes a certificate for every instance's host name.
func TestCertificateCommand(t *testing.T) {
	command := regexp.MustCompile(`(?m)^ *(openssl req .*)$`).FindSubmatch(read(t, "README.md"))
	if command == nil {
		t.Fatal("README.md has no such command")
	}
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("openssl is not installed")
	}
	dir := t.TempDir()
	openssl := exec.CommandContext(t.Context(), "bash", "-c", string(command[1]))
	openssl.Dir = dir
	if out, err := openssl.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	if err != nil {
		t.Fatal(err)
	}
	if err := pair.Leaf.VerifyHostname("a087f5f0-dad6-819c-99ef-854fccce0261.challenges.example.com"); err != nil {
		t.Error(err)
	}
	itself := x509.NewCertPool()
	itself.AddCert(pair.Leaf)
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: itself, DNSName: "any.challenges.example.com"}); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("it leaves %v, error %v", entries, err)
	}
}
