package tunnelsync

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/allowlist"
)

// lookUpTimeout is how long the operator waits at its start for the address of the API server.
const lookUpTimeout = 5 * time.Second

// DenyAPIServer returns settings with which no tunnel leads to the API server that the operator itself uses. host is the
// host of its configuration, an address or a name. At a loopback address, where other servers listen too, only the port
// is denied. On an error the name could not be resolved, and the settings do not deny its addresses.
func DenyAPIServer(ctx context.Context, cfg config.Tunnel, host string, names allowlist.Resolver) (config.Tunnel, error) {
	name, port, err := apiServer(host)
	if err != nil {
		return cfg, err
	}
	found := []netip.Addr{}
	if address, err := netip.ParseAddr(name); err == nil {
		found = append(found, address)
	} else if strings.EqualFold(name, defaultServer) {
		found = append(found, netip.IPv6Loopback())
	} else {
		ctx, done := context.WithTimeout(ctx, lookUpTimeout)
		defer done()
		if found, err = names.LookupNetIP(ctx, "ip", name); err != nil {
			return cfg, fmt.Errorf("resolve the API server %q, to which no tunnel may lead: %w", name, err)
		}
	}
	for _, address := range found {
		address = address.Unmap().WithZone("")
		if address.IsLoopback() {
			cfg = denyPort(cfg, port)
		} else if prefix := netip.PrefixFrom(address, address.BitLen()); !slices.Contains(cfg.Servers.Denied, prefix) {
			cfg.Servers.Denied = append(slices.Clone(cfg.Servers.Denied), prefix)
		}
	}
	return cfg, nil
}

// apiServer returns name and port of a configuration's host, which may be a URL.
func apiServer(host string) (name string, port int32, err error) {
	parsed, _, err := rest.DefaultServerURL(host, "", schema.GroupVersion{}, true)
	if err != nil {
		return "", 0, err
	}
	standard := int32(443)
	if parsed.Scheme == "http" {
		standard = 80
	}
	number, _ := strconv.ParseUint(parsed.Port(), 10, 16) // url.Parse accepts digits only
	return parsed.Hostname(), cmp.Or(int32(number), standard), nil
}

// denyPort denies a port to all servers, unless it is denied already.
func denyPort(cfg config.Tunnel, port int32) config.Tunnel {
	if slices.ContainsFunc(cfg.Servers.DeniedPorts, func(p allowlist.Ports) bool { return p.Includes(port) }) {
		return cfg
	}
	cfg.Servers.DeniedPorts = append(slices.Clone(cfg.Servers.DeniedPorts), allowlist.Ports{First: port, Last: port})
	return cfg
}

// DenyKubelet denies the port of the host's kubelet, which may not be the standard one.
func DenyKubelet(cfg config.Tunnel, host *corev1.Node) config.Tunnel {
	if host == nil || host.Status.DaemonEndpoints.KubeletEndpoint.Port == 0 {
		return cfg
	}
	return denyPort(cfg, host.Status.DaemonEndpoints.KubeletEndpoint.Port)
}
