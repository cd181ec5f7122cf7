package tunnelsync

import (
	"strings"
	"testing"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/settings"
)

// loaded returns the default settings with some changes.
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

func TestCheckTunnel(t *testing.T) {
	var cfg config.Tunnel
	var err error
	for _, s := range cfg.Section().Settings {
		if s.Name == "" {
			t.Fatal("a setting without a name")
		}
	}
	cfg = loaded(t)
	cfg, err = DenyAPIServer(t.Context(), cfg, "https://127.0.0.1:16443", nil)
	if err != nil {
		t.Fatal(err)
	}
	other, err := DenyAPIServer(t.Context(), loaded(t), "https://10.96.0.1:443", nil)
	if err != nil {
		t.Fatal(err)
	}
	other.Servers.Allowed = append(other.Servers.Allowed, other.Servers.Denied[0])
	for _, test := range []struct {
		cfg    config.Tunnel
		tunnel tunnelv1.TunnelConfiguration
		field  string
	}{
		{cfg, tunnelv1.TunnelConfiguration{ServerPort: 8080}, ""},
		{cfg, tunnelv1.TunnelConfiguration{ServerPort: 8080, ServerAddress: "127.0.0.9"}, ""},
		{cfg, tunnelv1.TunnelConfiguration{ServerPort: 8080, ServerAddress: "::1"}, ""},
		{cfg, tunnelv1.TunnelConfiguration{ServerPort: 8080, ServerAddress: "192.0.2.1"}, "serverAddress"},
		{cfg, tunnelv1.TunnelConfiguration{ServerPort: 80, ServerAddress: "169.254.169.254"}, "serverAddress"},
		{cfg, tunnelv1.TunnelConfiguration{ServerPort: 10250}, "serverPort"},
		{cfg, tunnelv1.TunnelConfiguration{ServerPort: 16443}, "serverPort"},
		{other, tunnelv1.TunnelConfiguration{ServerPort: 443, ServerAddress: "10.96.0.1"}, "serverAddress"},
		{cfg, tunnelv1.TunnelConfiguration{ServerPort: 8080, ClientProxyPort: 36672}, "clientProxyPort"},
		{cfg, tunnelv1.TunnelConfiguration{ServerPort: 8080, ClientProxyPort: 36673}, "clientProxyPort"},
		{cfg, tunnelv1.TunnelConfiguration{ServerPort: 8080, ClientProxyAddress: "here"}, "clientProxyAddress"},
	} {
		why := checkTunnel(4, test.tunnel, test.cfg)
		if (why == "") != (test.field == "") || test.field != "" && !strings.Contains(why, "spec.tunnels[4]."+test.field) {
			t.Errorf("%+v: %q, want %s", test.tunnel, why, test.field)
		}
	}
}

func TestAPairKeepsItsOwnPorts(t *testing.T) {
	cfg := loaded(t, "TUNNEL_CONTROL_PORT=40001", "TUNNEL_DATA_PORT=40002")
	if why := checkTunnel(0, tunnelv1.TunnelConfiguration{ServerPort: 80, ClientProxyPort: 40001}, cfg); why == "" {
		t.Error("a tunnel may have the pair's control port")
	}
	if why := checkTunnel(0, tunnelv1.TunnelConfiguration{ServerPort: 80, ClientProxyPort: 36672}, cfg); why != "" {
		t.Error(why)
	}
}
