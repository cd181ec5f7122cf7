package tunnelsync

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/bergctf/berg-operator/internal/kit/allowlist"
)

// nameServer knows some names.
type nameServer map[string][]netip.Addr

func (n nameServer) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	if found, ok := n[host]; ok {
		return found, nil
	}
	return nil, errors.New("no such host")
}

func TestDenyAPIServer(t *testing.T) {
	names := nameServer{
		"api.example": {netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")},
		"here":        {netip.MustParseAddr("127.0.0.1")},
	}
	for _, test := range []struct {
		host    string
		servers []string
		port    int32
		fails   bool
	}{
		{"https://10.96.0.1:443", []string{"10.96.0.1/32"}, 0, false},
		{"https://10.96.0.1", []string{"10.96.0.1/32"}, 0, false},
		{"10.96.0.1:6444", []string{"10.96.0.1/32"}, 0, false},
		{"https://[2001:db8::7]:443", []string{"2001:db8::7/128"}, 0, false},
		{"https://[2001:db8::7]", []string{"2001:db8::7/128"}, 0, false},
		{"https://[::ffff:10.0.0.1]:443", []string{"10.0.0.1/32"}, 0, false},
		{"https://127.0.0.1:17443/with/path", nil, 17443, false},
		{"https://[::1]:17443", nil, 17443, false},
		{"https://localhost:17443", nil, 17443, false},
		{"https://localhost", nil, 443, false},
		{"http://localhost", nil, 80, false},
		{"https://api.example:6443", []string{"192.0.2.1/32", "2001:db8::1/128"}, 0, false},
		{"https://here:17443", nil, 17443, false},
		{"https://unknown.example", nil, 0, true},
	} {
		cfg, err := DenyAPIServer(t.Context(), loaded(t), test.host, names)
		if (err != nil) != test.fails {
			t.Errorf("%s: %v", test.host, err)
		}
		var servers []string
		for _, s := range cfg.Servers.Denied {
			servers = append(servers, s.String())
		}
		if !slices.Equal(servers, test.servers) {
			t.Errorf("%s: %v are denied, want %v", test.host, servers, test.servers)
		}
		standard := loaded(t).Servers.DeniedPorts
		if more := cfg.Servers.DeniedPorts[len(standard):]; test.port == 0 && len(more) > 0 ||
			test.port != 0 && !slices.Equal(more, []allowlist.Ports{{First: test.port, Last: test.port}}) {
			t.Errorf("%s: ports %v are denied in addition to the default ones, want %d", test.host, more, test.port)
		}
	}
}
