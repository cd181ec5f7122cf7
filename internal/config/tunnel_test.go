package config

import (
	"strings"
	"testing"

	"github.com/bergctf/berg-operator/internal/kit/allowlist"
	"github.com/bergctf/berg-operator/internal/kit/settings"
)

func loadTunnel(env map[string]string) (Tunnel, error) {
	var cfg Tunnel
	_, err := settings.Load("", []settings.Section{cfg.Section()}, nil, func(name string) string { return env[name] }, nil)
	return cfg, err
}

func TestTunnelDefaults(t *testing.T) {
	cfg, err := loadTunnel(nil)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.ControlPort != 36672 || cfg.DataPort != 36673 || cfg.Backend != BackendHostPod || cfg.Publish != PublishPodIP {
		t.Errorf("%+v", cfg)
	}
	if cfg.TunnelStreams >= cfg.Streams || cfg.IdleTimeout != 0 {
		t.Errorf("one tunnel may have %d of %d streams, each idle for %s", cfg.TunnelStreams, cfg.Streams, cfg.IdleTimeout)
	}
	if len(cfg.Servers.Allowed) != 2 || cfg.HostPorts != (allowlist.Ports{First: 28000, Last: 28511}) || len(cfg.Servers.DeniedPorts) < 4 {
		t.Errorf("%+v", cfg)
	}
	if warnings := cfg.warnings(); len(warnings) != 0 {
		t.Errorf("warnings: %q", warnings)
	}
	if cfg, err = loadTunnel(map[string]string{"TUNNEL_DENIED_SERVERS": "::ffff:10.0.0.0/104"}); err != nil || cfg.Servers.Denied[0].String() != "10.0.0.0/8" {
		t.Errorf("a network in the notation of IPv6 denies %v, %v", cfg.Servers.Denied, err)
	}
}

func TestInvalidTunnelSettings(t *testing.T) {
	for name, value := range map[string]string{
		"TUNNEL_BACKEND": "Docker", "TUNNEL_PUBLISH": "LoadBalancer", "TUNNEL_HOST_PORTS": "5-4", "TUNNEL_DATA_PORT": "36672",
		"TUNNEL_ALLOWED_SERVERS": "localhost", "TUNNEL_DENIED_SERVERS": "10.0.0.1/8", "TUNNEL_DENIED_SERVER_PORTS": "0",
		"TUNNEL_REPOSITORY": "Upper", "TUNNEL_BINARY": "berg-tunnel", "TUNNEL_MAX_TUNNELS": "257", "TUNNEL_CALL_TIMEOUT": "1ms",
		"TUNNEL_CERTIFICATE_LIFETIME": "9s",
	} {
		_, err := loadTunnel(map[string]string{name: value})
		if err == nil || !strings.Contains(err.Error(), "TUNNEL_") {
			t.Errorf("%s=%s: %v", name, value, err)
		}
	}
	_, err := loadTunnel(map[string]string{"TUNNEL_REGISTRY_INSECURE": "true", "TUNNEL_REGISTRY_CA_FILE": "/ca.crt"})
	if err == nil {
		t.Error("HTTP with authorities is accepted")
	}
}

func TestTunnelWarnings(t *testing.T) {
	cfg, err := loadTunnel(map[string]string{"TUNNEL_IMAGE": "a", "TUNNEL_REGISTRY": "b", "TUNNEL_REGISTRY_INSECURE": "true", "TUNNEL_REGISTRY_SECRET": "c", "TUNNEL_PULL_SECRET": "c", "TUNNEL_CERTIFICATE_LIFETIME": "5m"})
	if err != nil {
		t.Fatal(err)
	}
	if got := cfg.warnings(); len(got) != 4 {
		t.Errorf("%q", got)
	}
}
