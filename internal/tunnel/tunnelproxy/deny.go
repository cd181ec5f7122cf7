package tunnelproxy

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/tunnel/allowlist"
)

// lookUpTimeout is how long the operator waits at its start for the name of the API server.
const lookUpTimeout = 5 * time.Second

// DenyAPIServer returns settings by which no tunnel leads to where the operator itself finds the
// API server: host is that of its configuration, an address or a name. At a loopback other servers
// listen too: there it is the port that is denied. The error is that of a name that could not be
// looked up; the settings are good then, but for it.
func DenyAPIServer(ctx context.Context, cfg config.Tunnel, host string, names allowlist.Resolver) (config.Tunnel, error) {
	name, port := apiServer(host)
	found := []netip.Addr{}
	if address, err := netip.ParseAddr(name); err == nil {
		found = append(found, address)
	} else if strings.EqualFold(name, defaultServer) {
		found = append(found, netip.IPv6Loopback())
	} else {
		ctx, done := context.WithTimeout(ctx, lookUpTimeout)
		defer done()
		if found, err = names.LookupNetIP(ctx, "ip", name); err != nil {
			return cfg, fmt.Errorf("look up the API server %q, to which no tunnel may lead: %w", name, err)
		}
	}
	for _, address := range found {
		address = address.Unmap().WithZone("")
		if address.IsLoopback() {
			cfg = denyPort(cfg, port)
		} else if alone := netip.PrefixFrom(address, address.BitLen()); !slices.Contains(cfg.DeniedServers, alone) {
			cfg.DeniedServers = append(slices.Clone(cfg.DeniedServers), alone)
		}
	}
	return cfg, nil
}

// apiServer returns the name and the port of a configuration's host, which may be a URL or not.
func apiServer(host string) (name string, port int32) {
	usual := int32(443)
	switch {
	case strings.HasPrefix(host, "http://"):
		usual = 80
	case !strings.Contains(host, "://"):
		host = "https://" + host
	}
	at, err := url.Parse(host)
	if err != nil {
		// An address of IPv6 without brackets is no URL.
		_, rest, _ := strings.Cut(host, "://")
		return strings.Trim(rest, "[]/"), usual
	}
	number, err := strconv.ParseUint(at.Port(), 10, 16)
	if err != nil {
		return at.Hostname(), usual
	}
	return at.Hostname(), cmp.Or(int32(number), usual)
}

// denyPort denies a port to all servers, unless it is denied already.
func denyPort(cfg config.Tunnel, port int32) config.Tunnel {
	if slices.ContainsFunc(cfg.DeniedServerPorts, func(p config.PortRange) bool { return p.First <= port && port <= p.Last }) {
		return cfg
	}
	cfg.DeniedServerPorts = append(slices.Clone(cfg.DeniedServerPorts), config.PortRange{First: port, Last: port})
	return cfg
}

// denyKubelet denies the port at which the kubelet of the host listens: it need not be the usual one.
func denyKubelet(cfg config.Tunnel, host *corev1.Node) config.Tunnel {
	if host == nil || host.Status.DaemonEndpoints.KubeletEndpoint.Port == 0 {
		return cfg
	}
	return denyPort(cfg, host.Status.DaemonEndpoints.KubeletEndpoint.Port)
}
