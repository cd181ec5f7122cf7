// Package allowlist decides which servers a tunnel may lead to. The operator checks the address in a spec. The server proxy
// checks again, for each stream, the addresses that a name resolves to, because they may change in between.
package allowlist

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// The defaults of the flags of berg-tunnel, and of the operator's settings.
const (
	// DefaultAllowed is the loopback of the host.
	DefaultAllowed = "127.0.0.0/8,::1/128"
	// DefaultDeniedPorts are the ports at a node's loopback of etcd (2381: its metrics, 12379: MicroK8s, 19001: its dqlite), the API
	// server (6444: k3s, 8443: minikube, 9345: the supervisor of RKE2, 16443: MicroK8s, 8001: kubectl proxy), the container runtimes
	// (2375: Docker, 10010: containerd's streams), the kubelet, kube-proxy, the controller managers (10258: of clouds), the scheduler
	// and the agents of nodes (25000: MicroK8s, 50000: Talos).
	DefaultDeniedPorts = "2375-2381,6443,6444,8001,8443,9345,10010,10248-10250,10255-10259,12379-12380,16443,19001,25000,50000-50001"
)

// ErrRefused is the error of an address that the rules do not allow.
var ErrRefused = errors.New("is not allowed")

// Rules are which addresses and ports a server may have. The zero value allows none.
type Rules struct {
	// Allowed are the networks that servers may be in.
	Allowed []netip.Prefix
	// Denied are networks that they must not be in, even if they are allowed.
	Denied []netip.Prefix
	// DeniedPorts are ports that no server may have.
	DeniedPorts []Ports
}

// Ports is a range of ports, both ends included.
type Ports struct{ First, Last int32 }

// Includes reports whether a port is in the range.
func (p Ports) Includes(port int32) bool { return p.First <= port && port <= p.Last }

// String returns the range as ParsePorts reads it.
func (p Ports) String() string {
	if p.First == p.Last {
		return strconv.Itoa(int(p.First))
	}
	return fmt.Sprintf("%d-%d", p.First, p.Last)
}

// ParseNetworks reads a list of networks and addresses with commas between them, such as
// 127.0.0.0/8,10.1.2.3. The empty text is an empty list.
func ParseNetworks(list string) (networks []netip.Prefix, err error) {
	for _, item := range split(list) {
		network, err := netip.ParsePrefix(item)
		if err != nil {
			address, err := netip.ParseAddr(item)
			if err != nil || address.Zone() != "" {
				return nil, fmt.Errorf("%q is neither an IP address nor a network such as 127.0.0.0/8", item)
			}
			network = netip.PrefixFrom(address, address.BitLen())
		}
		if network != network.Masked() {
			return nil, fmt.Errorf("%q has bits set beyond its length: want %s", item, network.Masked())
		}
		networks = append(networks, unmapped(network))
	}
	return networks, nil
}

// ParsePorts reads a list of ports and ranges with commas between them, such as
// 6443,10248-10250. The empty text is an empty list.
func ParsePorts(list string) (all []Ports, err error) {
	for _, item := range split(list) {
		ports, err := ParseRange(item)
		if err != nil {
			return nil, err
		}
		all = append(all, ports)
	}
	return all, nil
}

// ParseRange reads a port or a range of ports.
func ParseRange(text string) (Ports, error) {
	from, to, isRange := strings.Cut(text, "-")
	if !isRange {
		to = from
	}
	first, err1 := strconv.ParseUint(from, 10, 16)
	last, err2 := strconv.ParseUint(to, 10, 16)
	if err1 != nil || err2 != nil || first < 1 || first > last {
		return Ports{}, fmt.Errorf("%q is neither a port from 1 to 65535 nor a range such as 10248-10250", text)
	}
	return Ports{First: int32(first), Last: int32(last)}, nil
}

// unmapped returns the IPv4 network that an IPv6 notation such as ::ffff:10.0.0.0/104 stands for. Addresses are compared as
// IPv4, so the network as it was written would contain none.
func unmapped(network netip.Prefix) netip.Prefix {
	if bits := network.Bits() - 96; network.Addr().Is4In6() && bits >= 0 {
		return netip.PrefixFrom(network.Addr().Unmap(), bits)
	}
	return network
}

func split(list string) (items []string) {
	for item := range strings.SplitSeq(list, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

// Check returns nil if a server may be at an address and port, and otherwise an error that is
// ErrRefused and says why. The order matters: addresses that are never allowed come before the lists of an administrator, so that a wide
// network in Allowed opens none of it.
func (r Rules) Check(address netip.Addr, port int) error {
	plain := address.Unmap().WithZone("")
	refuse := func(reason string) error { return fmt.Errorf("server %s %w: %s", plain, ErrRefused, reason) }
	switch {
	case !plain.IsValid() || plain.IsUnspecified():
		return refuse("it is not the address of a server")
	case plain.IsLinkLocalUnicast() || plain.IsMulticast() || plain == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		// Clouds serve the credentials of a node at link-local addresses.
		return refuse("link-local, multicast and broadcast addresses are never allowed")
	case contains(metadata, plain):
		return refuse("clouds serve the credentials of a node there")
	}
	if err := r.CheckPort(port); err != nil {
		return err
	}
	for _, network := range r.Denied {
		if network.Contains(plain) {
			return refuse("it is in " + network.String() + ", which is denied")
		}
	}
	for _, inner := range embedded(plain) {
		if err := r.Check(inner, port); err != nil {
			return refuse("it leads to an IPv4 address: " + err.Error())
		}
	}
	if !contains(r.Allowed, plain) {
		return refuse("it is in none of the allowed networks")
	}
	return nil
}

func contains(networks []netip.Prefix, address netip.Addr) bool {
	return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(address) })
}

// CheckPort returns nil if a server may have a port, and otherwise an error that is ErrRefused.
func (r Rules) CheckPort(port int) error {
	for _, ports := range r.DeniedPorts {
		if ports.Includes(int32(port)) {
			return fmt.Errorf("server port %d %w: it is denied", port, ErrRefused)
		}
	}
	return nil
}

// Resolver resolves names, as net.Resolver does.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Resolve returns the addresses of a server that are allowed, IPv4 first because most servers listen there. An empty host
// is localhost. The error is ErrRefused if the host has addresses and none is allowed. The caller must connect to one of the
// returned addresses and not to the name: a second look-up may have another answer.
func (r Rules) Resolve(ctx context.Context, resolver Resolver, host string, port int) ([]netip.Addr, error) {
	var found []netip.Addr
	switch address, err := netip.ParseAddr(host); {
	case err == nil:
		found = []netip.Addr{address}
	case host == "" || strings.EqualFold(host, "localhost"):
		// No resolver may decide where localhost is.
		found = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
	default:
		found, err = resolver.LookupNetIP(ctx, "ip", host)
		if err != nil {
			return nil, fmt.Errorf("resolve server %q: %w", host, err)
		}
	}
	var v4, v6 []netip.Addr
	var refused error
	for _, address := range found {
		switch err := r.Check(address, port); {
		case err != nil:
			refused = err
		case address.Unmap().Is4():
			v4 = append(v4, address.Unmap())
		default:
			v6 = append(v6, address)
		}
	}
	if all := append(v4, v6...); len(all) > 0 {
		return all, nil
	}
	if refused == nil {
		refused = &net.DNSError{Err: "it has no address", Name: host, IsNotFound: true}
	}
	return nil, refused
}
