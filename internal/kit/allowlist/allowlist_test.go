package allowlist

import (
	"context"
	"errors"
	"fmt"
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

// defaultRules are the rules of the constants.
func defaultRules() Rules {
	allowed, _ := ParseNetworks(DefaultAllowed)
	ports, _ := ParsePorts(DefaultDeniedPorts)
	return Rules{Allowed: allowed, DeniedPorts: ports}
}

func TestCheck(t *testing.T) {
	wide := defaultRules()
	wide.Allowed, _ = ParseNetworks("0.0.0.0/0,::/0")
	wide.Denied, _ = ParseNetworks("10.96.0.1,192.168.0.0/16")
	for _, c := range []struct {
		name    string
		rules   Rules
		address string
		port    int
		allowed bool
	}{
		{"loopback is the default", defaultRules(), "127.0.0.1", 8080, true},
		{"all of it", defaultRules(), "127.9.9.9", 8080, true},
		{"of IPv6 as well", defaultRules(), "::1", 8080, true},
		{"written as IPv6", defaultRules(), "::ffff:127.0.0.1", 8080, true},
		{"nothing else is", defaultRules(), "10.0.0.1", 8080, false},
		{"the zero value allows none", Rules{}, "127.0.0.1", 8080, false},
		{"the kubelet on loopback", defaultRules(), "127.0.0.1", 10250, false},
		{"the API server on loopback", defaultRules(), "127.0.0.1", 6443, false},
		{"etcd", defaultRules(), "127.0.0.1", 2380, false},
		{"next to a denied range", defaultRules(), "127.0.0.1", 10251, true},
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
		{"AWS over IPv6", wide, "fd00:ec2::254", 80, false},
		{"EKS Pod Identity", wide, "fd00:ec2::23", 80, false},
		{"next to it", wide, "fd00:ec3::254", 80, true},
		{"Google Cloud over IPv6", wide, "fd20:ce::254", 80, false},
		{"metadata through NAT64", wide, "64:ff9b::a9fe:a9fe", 80, false},
		{"loopback through NAT64", func() Rules { r := wide; r.Denied, _ = ParseNetworks("127.0.0.0/8"); return r }(), "64:ff9b::7f00:1", 80, false},
		{"a denied address through NAT64", wide, "64:ff9b::10.96.0.1", 443, false},
		{"another one through NAT64", wide, "64:ff9b::8.8.8.8", 443, true},
		{"NAT64 of IPv4 that is not allowed", func() Rules { r := wide; r.Allowed, _ = ParseNetworks("127.0.0.0/8,::/0"); return r }(), "64:ff9b::8.8.8.8", 443, false},
		{"metadata through a local NAT64", wide, "64:ff9b:1::a9fe:a9fe", 80, false},
		{"in the place of a /48", wide, "64:ff9b:1:a9fe:a9:fe00::", 80, false},
		{"in the place of a /56", wide, "64:ff9b:1:a9:fe:a9fe::", 80, false},
		{"in the place of a /64", wide, "64:ff9b:1:0:a9:fea9:fe00:0", 80, false},
		{"an empty local NAT64", wide, "64:ff9b:1::", 80, false},
		{"metadata through 6to4", wide, "2002:a9fe:a9fe::1", 80, false},
		{"another one through 6to4", wide, "2002:808:808::1", 80, true},
		{"metadata behind Teredo", wide, "2001:0:808:808:0:0:5601:5601", 80, false},
		{"metadata as the server of Teredo", wide, "2001:0:a9fe:a9fe:0:0:f7f7:f7f7", 80, false},
		{"another one behind Teredo", wide, "2001:0:808:808:0:0:f7f7:f7f7", 80, true},
		{"metadata as a compatible address", wide, "::a9fe:a9fe", 80, false},
		{"metadata as a translated address", wide, "::ffff:0:a9fe:a9fe", 80, false},
		{"metadata behind ISATAP", wide, "2001:db8::5efe:a9fe:a9fe", 80, false},
		{"metadata behind ISATAP with a global identifier", wide, "2001:db8::200:5efe:a9fe:a9fe", 80, false},
		{"another one behind ISATAP", wide, "2001:db8::200:5efe:808:808", 80, true},
		{"metadata behind ISATAP within 6to4", wide, "2002:808:808:1:0:5efe:a9fe:a9fe", 80, false},
		{"loopback through NAT64 is not the loopback", defaultRules(), "64:ff9b::7f00:1", 80, false},
		{"nor through a local NAT64", defaultRules(), "64:ff9b:1::7f00:1", 80, false},
		{"nor through 6to4", defaultRules(), "2002:7f00:1::5", 80, false},
		{"nor behind Teredo", defaultRules(), "2001:0:7f00:1:0:0:80ff:fffe", 80, false},
		{"nor behind ISATAP", defaultRules(), "2001:db8::5efe:7f00:1", 80, false},
		{"nor as a compatible address", defaultRules(), "::127.0.0.1", 80, false},
		{"nor as a translated address", defaultRules(), "::ffff:0:7f00:1", 80, false},
		{"metrics of etcd", defaultRules(), "127.0.0.1", 2381, false},
		{"the supervisor of RKE2", defaultRules(), "127.0.0.1", 9345, false},
		{"Docker", defaultRules(), "127.0.0.1", 2375, false},
		{"kubectl proxy", defaultRules(), "127.0.0.1", 8001, false},
		{"streams of containerd", defaultRules(), "127.0.0.1", 10010, false},
		{"etcd of MicroK8s", defaultRules(), "127.0.0.1", 12379, false},
		{"its dqlite", defaultRules(), "127.0.0.1", 19001, false},
		{"its agent", defaultRules(), "127.0.0.1", 25000, false},
		{"the API of Talos", defaultRules(), "127.0.0.1", 50000, false},
		{"the API server of k3s", defaultRules(), "127.0.0.1", 6444, false},
		{"the API server of minikube", defaultRules(), "127.0.0.1", 8443, false},
		{"the API server of MicroK8s", defaultRules(), "127.0.0.1", 16443, false},
		{"the cloud controller manager", defaultRules(), "127.0.0.1", 10258, false},
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
	rules := defaultRules()
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
	if got := defaultRules(); len(got.Allowed) != 2 || len(got.DeniedPorts) != 14 {
		t.Errorf("the defaults are %+v", got)
	}
	if got, err := ParseNetworks("::ffff:10.0.0.0/104,::ffff:0:0/96,::ffff:192.0.2.1,::/0"); err != nil || fmt.Sprint(got) != "[10.0.0.0/8 0.0.0.0/0 192.0.2.1/32 ::/0]" {
		t.Errorf("mapped networks: %v, %v", got, err)
	}
	if got, err := ParseNetworks(" 10.1.2.3 , ::1 "); err != nil || len(got) != 2 || got[0].Bits() != 32 {
		t.Errorf("ParseNetworks = %v, %v", got, err)
	}
}

// However an IPv4 address is written or embedded, no notation leads to one that is refused as it is, and no IPv6 address is allowed
// by an IPv4 network.
func FuzzEveryNotationIsCheckedAlike(f *testing.F) {
	for _, seed := range []string{"169.254.169.254", "10.0.0.1", "127.0.0.1", "0.0.0.0", "224.0.0.1", "255.255.255.255", "8.8.8.8", "100.100.100.200", "0.1.2.3"} {
		a := netip.MustParseAddr(seed).As4()
		f.Add(a[:], "::ffff:10.0.0.0/104", uint16(80))
		f.Add(a[:], "10.0.0.0/8,127.0.0.0/8", uint16(8443))
	}
	f.Fuzz(func(t *testing.T, bytes []byte, denied string, port uint16) {
		networks, err := ParseNetworks(denied)
		if err != nil || len(bytes) < 4 {
			return
		}
		wide := defaultRules()
		wide.Allowed, _ = ParseNetworks("0.0.0.0/0,::/0")
		wide.Denied = networks
		a := [4]byte(bytes[:4])
		plain := netip.AddrFrom4(a)
		refused := wide.Check(plain, int(port))
		narrow := wide
		narrow.Allowed, _ = ParseNetworks("0.0.0.0/0")
		for _, n := range networks {
			if n.Contains(plain) && refused == nil {
				t.Errorf("%s is allowed, although %s is denied", plain, n)
			}
			if n.Addr().Is4In6() {
				t.Errorf("%s was not unmapped", n)
			}
		}
		mapped := netip.AddrFrom16(plain.As16())
		in := func(prefix string, places ...int) netip.Addr {
			b := netip.MustParseAddr(prefix).As16()
			for i, place := range places {
				b[place] = a[i]
			}
			return netip.AddrFrom16(b)
		}
		inverted := in("2001:0:808:808::", 12, 13, 14, 15).As16()
		for i := 12; i < 16; i++ {
			inverted[i] = ^inverted[i]
		}
		for name, address := range map[string]netip.Addr{
			"mapped": mapped, "NAT64": in("64:ff9b::", 12, 13, 14, 15), "6to4": in("2002::", 2, 3, 4, 5),
			"Teredo": netip.AddrFrom16(inverted), "the server of Teredo": in("2001::f7f7:f7f7", 4, 5, 6, 7),
			"translated": in("::ffff:0:0:0", 12, 13, 14, 15), "ISATAP": in("2001:db8::200:5efe:0:0", 12, 13, 14, 15),
			"local NAT64 /48": in("64:ff9b:1::", 6, 7, 9, 10), "local NAT64 /56": in("64:ff9b:1::", 7, 9, 10, 11),
			"local NAT64 /64": in("64:ff9b:1::", 9, 10, 11, 12), "local NAT64 /96": in("64:ff9b:1::", 12, 13, 14, 15),
		} {
			if err := wide.Check(address, int(port)); err == nil && refused != nil {
				t.Errorf("%s is refused (%v), but %s leads to it (%s)", plain, refused, address, name)
			}
			if err := narrow.Check(address, int(port)); err == nil && name != "mapped" {
				t.Errorf("%s (%s) is allowed, although no network of IPv6 is", address, name)
			}
		}
	})
}
