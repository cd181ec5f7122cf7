package tunnelsync

import (
	"fmt"
	"net/netip"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/tunnel/control"
)

// The default addresses of a tunnel.
const (
	defaultServer = "localhost"
	defaultListen = "0.0.0.0"
)

func request(t tunnelv1.TunnelConfiguration) *control.TunnelRequest {
	r := &control.TunnelRequest{
		Name: t.Name, ServerAddress: t.ServerAddress, ServerPort: t.ServerPort,
		ClientProxyAddress: t.ClientProxyAddress, ClientProxyPort: t.ClientProxyPort,
	}
	if r.ServerAddress == "" {
		r.ServerAddress = defaultServer
	}
	if r.ClientProxyAddress == "" {
		r.ClientProxyAddress = defaultListen
	}
	return r
}

// checkTunnel returns why a tunnel must not be prepared, "" if it may, as far as that is known before the proxies are called.
func checkTunnel(index int, t tunnelv1.TunnelConfiguration, cfg config.Tunnel) string {
	field := func(name string) string { return fmt.Sprintf("spec.tunnels[%d].%s", index, name) }
	if t.ClientProxyPort != 0 && (t.ClientProxyPort == cfg.ControlPort || t.ClientProxyPort == cfg.DataPort) {
		return fmt.Sprintf("%s: %d is the control or data port of the client proxy: choose another port, or 0 for a random one", field("clientProxyPort"), t.ClientProxyPort)
	}
	if _, err := netip.ParseAddr(request(t).ClientProxyAddress); err != nil {
		return fmt.Sprintf("%s: %q is not an IP address: omit the field to listen at all addresses of the client proxy", field("clientProxyAddress"), t.ClientProxyAddress)
	}
	rules := cfg.Servers
	if err := rules.CheckPort(int(t.ServerPort)); err != nil {
		return fmt.Sprintf("%s: %s: an administrator may change TUNNEL_DENIED_SERVER_PORTS", field("serverPort"), err)
	}
	address, err := netip.ParseAddr(request(t).ServerAddress)
	if err != nil {
		return "" // the server proxy checks the addresses of a name
	}
	if err := rules.Check(address, int(t.ServerPort)); err != nil {
		return fmt.Sprintf("%s: %s: an administrator may change TUNNEL_ALLOWED_SERVERS", field("serverAddress"), err)
	}
	return ""
}

// checkTunnels returns why tunnels of a spec must not be prepared, by their names.
func checkTunnels(tunnels []tunnelv1.TunnelConfiguration, cfg config.Tunnel) map[string]string {
	all := map[string]string{}
	for i, t := range tunnels {
		if problem := checkTunnel(i, t, cfg); problem != "" {
			all[t.Name] = problem
		}
		if i >= cfg.Tunnels {
			all[t.Name] = fmt.Sprintf("spec.tunnels[%d]: a pair of proxies has at most %d tunnels: an administrator may change TUNNEL_MAX_TUNNELS", i, cfg.Tunnels)
		}
	}
	return all
}
