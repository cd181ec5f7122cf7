package tunnelproxy

import (
	"cmp"

	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/tunnel/pairobjects"
	"github.com/bergctf/berg-operator/internal/tunnel/tunnelproxy/status"
	"github.com/bergctf/berg-operator/internal/tunnel/tunnelproxy/tunnelsync"
)

// pairSettings returns the settings of a pair. The settings that it was started with stay in force, even if an
// administrator has changed them since. No tunnel may lead to the kubelet of the host.
func pairSettings(cfg config.Tunnel, o status.Observed) config.Tunnel {
	s := o.Proxy.Status
	cfg.Backend = cmp.Or(config.TunnelBackend(s.ServerProxyBackend), cfg.Backend)
	if o.Client != nil {
		cfg.Publish = cmp.Or(config.TunnelPublish(s.ClientProxyPublish), cfg.Publish)
		control, data := pairobjects.Ports(o.Client)
		cfg.ControlPort, cfg.DataPort = cmp.Or(control.ContainerPort, cfg.ControlPort), cmp.Or(data.ContainerPort, cfg.DataPort)
	}
	return tunnelsync.DenyKubelet(cfg, o.Host)
}
