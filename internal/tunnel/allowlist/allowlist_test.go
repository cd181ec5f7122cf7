package allowlist

import (
	"context"
	"errors"
	"net/netip"
	"testing"
)

type names map[string][]netip.Addr

func (n names) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	if found, ok := n[host]; ok {
		return found, nil
	}
	return nil, errors.New("no such host")
}

func TestCheck(t *testing.T) {
	wide := Default()
	wide.Allowed, _ = ParseNetworks("0.0.0.0/0,::/0")
	wide.Denied, _ = ParseNetworks("10.96.0.1,192.168.0.0/16")
	for _, c := range []struct {
		name    string
		rules   Rules
		address string
		port    int
		allowed bool
	}{
		{"loopback is the default", Default(), "127.0.0.1", 8080, true},
		{"all of it", Default(), "127.9.9.9", 8080, true},
		{"of IPv6 as well", Default(), "::1", 8080, true},
		{"written as IPv6", Default(), "::ffff:127.0.0.1", 8080, true},
		{"nothing else is", Default(), "10.0.0.1", 8080, false},
		{"the zero value allows none", Rules{}, "127.0.0.1", 8080, false},
		{"the kubelet on loopback", Default(), "127.0.0.1", 10250, false},
		{"the API server on loopback", Default(), "127.0.0.1", 6443, false},
		{"etcd", Default(), "127.0.0.1", 2380, false},
		{"next to a denied range", Default(), "127.0.0.1", 10251, true},
		{"wide", wide, "8.8.8.8", 53, true},
		{"denied address", wide, "10.96.0.1", 443, false},
		{"denied address written as IPv6", wide, "::ffff:10.96.0.1", 443, false},
		{"denied network", wide, "192.168.3.4", 443, false},
		{"metadata of clouds, although all is allowed", wide, "169.254.169.254", 80, false},
		{"link-local of IPv6", wide, "fe80::1", 80, false},
		{"link-local with a zone", wide, "fe80::1%lo", 80, false},
		{"unspecified is the host itself to Linux", wide, "0.0.0.0", 80, false},
		{"unspecified of IPv6", wide, "::", 80, false},
		{"multicast", wide, "224.0.0.1", 80, false},
		{"broadcast", wide, "255.255.255.255", 80, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.rules.Check(netip.MustParseAddr(c.address), c.port)
			if (err == nil) != c.allowed || (err != nil && !errors.Is(err, ErrRefused)) {
				t.Errorf("Check(%s, %d) = %v", c.address, c.port, err)
			}
		})
	}
}

func TestResolve(t *testing.T) {
	known := names{
		"both.test":  {netip.MustParseAddr("::1"), netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("10.0.0.1")},
		"evil.test":  {netip.MustParseAddr("169.254.169.254")},
		"empty.test": {},
	}
	rules := Default()
	got, err := rules.Resolve(context.Background(), known, "both.test", 80)
	if err != nil || len(got) != 2 || got[0].String() != "127.0.0.1" || got[1].String() != "::1" {
		t.Errorf("both.test: %v, %v: want the allowed ones, IPv4 first", got, err)
	}
	for _, host := range []string{"", "localhost", "LOCALHOST", "127.0.0.1"} {
		if got, err := rules.Resolve(context.Background(), names{}, host, 80); err != nil || got[0].String() != "127.0.0.1" {
			t.Errorf("%q: %v, %v", host, got, err)
		}
	}
	if _, err := rules.Resolve(context.Background(), known, "evil.test", 80); !errors.Is(err, ErrRefused) {
		t.Errorf("evil.test: %v: want it refused", err)
	}
	for _, host := range []string{"empty.test", "unknown.test"} {
		if _, err := rules.Resolve(context.Background(), known, host, 80); err == nil || errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v: want an error that may pass", host, err)
		}
	}
}

func TestParse(t *testing.T) {
	for _, list := range []string{"127.0.0.1/8", "localhost", "1.2.3.4/33", "fe80::1%lo"} {
		if got, err := ParseNetworks(list); err == nil {
			t.Errorf("ParseNetworks(%q) = %v", list, got)
		}
	}
	for _, list := range []string{"0", "65536", "5-4", "http", "1-"} {
		if got, err := ParsePorts(list); err == nil {
			t.Errorf("ParsePorts(%q) = %v", list, got)
		}
	}
	if got := Default(); len(got.Allowed) != 2 || len(got.DeniedPorts) != 6 {
		t.Errorf("the defaults are %+v", got)
	}
	if got, err := ParseNetworks(" 10.1.2.3 , ::1 "); err != nil || len(got) != 2 || got[0].Bits() != 32 {
		t.Errorf("ParseNetworks = %v, %v", got, err)
	}
}
