package status

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
)

// Tunnels returns the states of the tunnels after a reconciliation; a state without a new observation stays. The time of a tunnel
// changes only with what the status says of it.
func Tunnels(out Outcome, now time.Time) []tunnelv1.TunnelStatus {
	before := tunnelsByName(out.Proxy)
	var after []tunnelv1.TunnelStatus
	switch {
	case out.State == tunnelv1.StateFailed:
		for _, t := range out.Proxy.Spec.Tunnels {
			after = append(after, tunnelv1.TunnelStatus{Name: t.Name, State: tunnelv1.TunnelFailed, ErrorMessage: conditions.Bound("The proxies have ended: " + out.End)})
		}
	case out.Current:
		for _, t := range out.Tunnels.Tunnels {
			status := tunnelv1.TunnelStatus{Name: t.Name, State: tunnelv1.TunnelReady, TunnelID: t.ID, ClientProxyAddresses: t.Addresses, ClientProxyPort: t.Port}
			if t.WantedPort != 0 && t.WantedPort != t.Port {
				status.Message = fmt.Sprintf("Port %d is in use in the client proxy, so this tunnel listens at port %d: set clientProxyPort to another port, or to 0", t.WantedPort, t.Port)
			}
			if t.Err != "" {
				status = tunnelv1.TunnelStatus{Name: t.Name, State: tunnelv1.TunnelFailed, ErrorMessage: t.Err}
			}
			after = append(after, status)
		}
	default:
		return out.Proxy.Status.TunnelStatuses
	}
	for i := range after {
		after[i].Timestamp = metav1.MicroTime{Time: now.Truncate(time.Microsecond)}
		if old, exists := before[after[i].Name]; exists && sameTunnel(old, after[i]) {
			after[i].Timestamp = old.Timestamp
		}
	}
	sortTunnels(after)
	return after
}

// tunnelsAfterEnd returns the tunnels of a failed pair whose spec has changed since.
func tunnelsAfterEnd(p *tunnelv1.ContainerNetworkTunnelProxy, now time.Time) (after []tunnelv1.TunnelStatus) {
	before := tunnelsByName(p)
	for _, t := range p.Spec.Tunnels {
		status, known := before[t.Name]
		if !known {
			status = tunnelv1.TunnelStatus{
				Name: t.Name, State: tunnelv1.TunnelFailed, Timestamp: metav1.MicroTime{Time: now.Truncate(time.Microsecond)},
				ErrorMessage: "The proxies had ended before this tunnel was added: delete this object and create another one",
			}
		}
		after = append(after, status)
	}
	sortTunnels(after)
	return after
}

func tunnelsByName(p *tunnelv1.ContainerNetworkTunnelProxy) map[string]tunnelv1.TunnelStatus {
	all := map[string]tunnelv1.TunnelStatus{}
	for _, t := range p.Status.TunnelStatuses {
		all[t.Name] = t
	}
	return all
}

func sortTunnels(all []tunnelv1.TunnelStatus) {
	slices.SortFunc(all, func(a, b tunnelv1.TunnelStatus) int { return cmp.Compare(a.Name, b.Name) })
}

func failures(tunnels []Tunnel) (all []string) {
	for _, t := range tunnels {
		if t.Err != "" {
			all = append(all, t.Name+": "+t.Err)
		}
	}
	return all
}

func sameTunnel(a, b tunnelv1.TunnelStatus) bool {
	return a.State == b.State && a.TunnelID == b.TunnelID && a.ErrorMessage == b.ErrorMessage && a.Message == b.Message &&
		a.ClientProxyPort == b.ClientProxyPort && slices.Equal(a.ClientProxyAddresses, b.ClientProxyAddresses)
}

// applied returns the tunnels after a reconciliation, and the version of the set that is in effect. A tunnel that is
// prepared again has another ID.
func applied(out Outcome, now time.Time) (after []tunnelv1.TunnelStatus, version int32) {
	s := out.Proxy.Status
	after = Tunnels(out, now)
	if out.Current && !maps.Equal(inEffect(s.TunnelStatuses), inEffect(after)) {
		return after, s.TunnelConfigurationVersion + 1
	}
	return after, s.TunnelConfigurationVersion
}

// inEffect returns the IDs of the tunnels that accept connections, by name.
func inEffect(tunnels []tunnelv1.TunnelStatus) map[string]uint32 {
	all := map[string]uint32{}
	for _, t := range tunnels {
		if t.State == tunnelv1.TunnelReady {
			all[t.Name] = t.TunnelID
		}
	}
	return all
}
