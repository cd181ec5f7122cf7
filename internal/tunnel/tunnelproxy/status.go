package tunnelproxy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
)

// computeStatus writes into the status of a live pair what an outcome means.
func computeStatus(out Outcome, now time.Time) {
	p := out.Proxy
	s := &p.Status
	wanted := []metav1.Condition{networkReady(out), imageReady(out), proxiesReady(out)}
	if c, news := tunnelsReady(out); news {
		wanted = append(wanted, c)
	}
	s.TunnelStatuses, s.TunnelConfigurationVersion = applied(out, now)
	// Until the proxies have answered, the tunnels are told as an older generation had them.
	if out.State != tunnelv1.StateRunning || out.Current {
		s.ObservedGeneration = p.Generation
	}
	s.State = out.State
	s.Message = messageOf(out)
	if out.Image != "" {
		s.ClientProxyContainerImage = out.Image
	}
	switch out.State {
	case tunnelv1.StateRunning, tunnelv1.StateStarting:
		s.ServerProxyBackend, s.ClientProxyPublish = string(out.Backend), string(out.Publish)
		locate(out)
	case tunnelv1.StateEmpty, tunnelv1.StatePending, tunnelv1.StateBuildingImage, tunnelv1.StateFailed:
		clearPlaces(s)
	}
	conditions.Upsert(&s.Conditions, p.Generation, now, wanted...)
}

// locate writes where the proxies are.
func locate(out Outcome) {
	s := &out.Proxy.Status
	if out.Client != nil && podReady(out.Client) {
		s.ClientProxyContainerID = containerID(out.Client)
	}
	if out.Endpoint.Address != "" {
		s.ClientProxyAddress, s.ClientProxyControlPort, s.ClientProxyDataPort = out.Endpoint.Address, out.Endpoint.Control, out.Endpoint.Data
	}
	server := out.Server
	if !server.Exists {
		return
	}
	s.ServerProxyStdOutFile, s.ServerProxyStdErrFile = server.Out, server.Err
	if server.Ready == nil {
		return
	}
	// What is measured against the boot of a machine moves with its clock.
	if at := s.ServerProxyStartupTimestamp; at == nil || at.Sub(server.StartedAt).Abs() > clockTolerance {
		s.ServerProxyStartupTimestamp = &metav1.MicroTime{Time: server.StartedAt.Truncate(time.Microsecond)}
	}
	s.ServerProxyProcessID = ptr.To(server.Ready.PID)
	s.ServerProxyAddress, s.ServerProxyControlPort = server.Address, server.Ready.ControlPort
}

const clockTolerance = 5 * time.Second

// clearPlaces: there are no proxies. What they have written stays until the object is deleted.
func clearPlaces(s *tunnelv1.ContainerNetworkTunnelProxyStatus) {
	s.ClientProxyContainerID, s.ClientProxyAddress, s.ClientProxyControlPort, s.ClientProxyDataPort = "", "", 0, 0
	s.ServerProxyProcessID, s.ServerProxyStartupTimestamp, s.ServerProxyAddress, s.ServerProxyControlPort = nil, nil, "", 0
}

func messageOf(out Outcome) string {
	switch {
	case out.End != "":
		return conditions.Bound("The tunnels have ended for ever: " + out.End + ": delete this object and create another one")
	case out.Problem != nil:
		return conditions.Bound(out.Problem.Message)
	case out.Tunnels.Err != "":
		return conditions.Bound("The server proxy does not answer, which is tried again: " + out.Tunnels.Err)
	case out.State == tunnelv1.StateRunning && out.Current:
		failed := failures(out.Tunnels.Tunnels)
		if len(failed) > 0 {
			return conditions.Bound(fmt.Sprintf("%d of %d tunnels do not accept connections: %s", len(failed), len(out.Tunnels.Tunnels), strings.Join(failed, "; ")))
		}
		return fmt.Sprintf("%d tunnels accept connections", len(out.Tunnels.Tunnels))
	default:
		return out.Proxy.Status.Message
	}
}

// computeChangedAfterEnd writes into the status of a pair that has ended that its spec was changed
// since, which makes no difference: the tunnels that it has now have ended, too.
func computeChangedAfterEnd(p *tunnelv1.ContainerNetworkTunnelProxy, now time.Time) {
	s := &p.Status
	before := map[string]tunnelv1.TunnelStatus{}
	for _, t := range s.TunnelStatuses {
		before[t.Name] = t
	}
	s.TunnelStatuses = nil
	for _, t := range p.Spec.Tunnels {
		status, known := before[t.Name]
		if !known {
			status = tunnelv1.TunnelStatus{
				Name: t.Name, State: tunnelv1.TunnelFailed, Timestamp: metav1.MicroTime{Time: now.Truncate(time.Microsecond)},
				ErrorMessage: "The proxies had ended before this tunnel was added: delete this object and create another one",
			}
		}
		s.TunnelStatuses = append(s.TunnelStatuses, status)
	}
	sortTunnels(s.TunnelStatuses)
	s.ObservedGeneration = p.Generation
	conditions.Upsert(&s.Conditions, p.Generation, now, slices.Clone(s.Conditions)...)
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

// tunnelStatuses are those after a pass: as they were where nothing new is known.
func tunnelStatuses(out Outcome, now time.Time) []tunnelv1.TunnelStatus {
	before := map[string]tunnelv1.TunnelStatus{}
	for _, t := range out.Proxy.Status.TunnelStatuses {
		before[t.Name] = t
	}
	var after []tunnelv1.TunnelStatus
	switch {
	case out.State == tunnelv1.StateFailed:
		for _, t := range out.Proxy.Spec.Tunnels {
			after = append(after, tunnelv1.TunnelStatus{Name: t.Name, State: tunnelv1.TunnelFailed, ErrorMessage: conditions.Bound("The proxies have ended: " + out.End)})
		}
	case out.Current:
		for _, t := range out.Tunnels.Tunnels {
			status := tunnelv1.TunnelStatus{Name: t.Name, State: tunnelv1.TunnelReady, TunnelID: t.ID, ClientProxyAddresses: t.Addresses, ClientProxyPort: t.Port}
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
		if was, there := before[after[i].Name]; there && sameTunnel(was, after[i]) {
			after[i].Timestamp = was.Timestamp
		}
	}
	sortTunnels(after)
	return after
}

func sameTunnel(a, b tunnelv1.TunnelStatus) bool {
	return a.State == b.State && a.TunnelID == b.TunnelID && a.ErrorMessage == b.ErrorMessage &&
		a.ClientProxyPort == b.ClientProxyPort && slices.Equal(a.ClientProxyAddresses, b.ClientProxyAddresses)
}

// applied returns the tunnels after a pass, and the version of the set that is in effect: a
// tunnel that is prepared anew has another ID.
func applied(out Outcome, now time.Time) (after []tunnelv1.TunnelStatus, version int32) {
	s := out.Proxy.Status
	after = tunnelStatuses(out, now)
	if out.Current && !slices.Equal(inEffect(s.TunnelStatuses), inEffect(after)) {
		return after, s.TunnelConfigurationVersion + 1
	}
	return after, s.TunnelConfigurationVersion
}

type inEffectTunnel struct {
	name string
	id   uint32
}

func inEffect(tunnels []tunnelv1.TunnelStatus) (all []inEffectTunnel) {
	for _, t := range tunnels {
		if t.State == tunnelv1.TunnelReady {
			all = append(all, inEffectTunnel{t.Name, t.TunnelID})
		}
	}
	return all
}

func condition(conditionType string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: conditionType, Status: status, Reason: reason, Message: message}
}

// step is the condition of a step that all before it do not hold up.
func step(out Outcome, this string, done bool, reason, message string) metav1.Condition {
	switch p := out.Problem; {
	case out.End != "" && out.Step == this:
		return condition(this, metav1.ConditionFalse, endReason(this), out.End)
	case out.End != "" && !done:
		return condition(this, metav1.ConditionFalse, tunnelv1.ReasonFailed, "The tunnels have ended for ever")
	case p != nil && p.Condition == this:
		return condition(this, metav1.ConditionFalse, p.Reason, p.Message)
	case !done && p != nil:
		return condition(this, metav1.ConditionUnknown, tunnelv1.ReasonWaiting, "Waits for "+p.Condition)
	case !done:
		return condition(this, metav1.ConditionUnknown, tunnelv1.ReasonWaiting, "Is not known yet")
	default:
		return condition(this, metav1.ConditionTrue, reason, message)
	}
}

func endReason(of string) string {
	if of == tunnelv1.ConditionImageReady {
		return tunnelv1.ReasonImageFailed
	}
	return tunnelv1.ReasonProxyEnded
}

func networkReady(out Outcome) metav1.Condition {
	const this = tunnelv1.ConditionNetworkReady
	if out.State == tunnelv1.StateRunning && !networkRuns(out.Network) {
		return condition(this, metav1.ConditionFalse, tunnelv1.ReasonNetworkGone,
			fmt.Sprintf("ContainerNetwork %s is not there, or not Running any more; the tunnels go on", out.Proxy.Spec.ContainerNetworkName))
	}
	return step(out, this, networkRuns(out.Network), tunnelv1.ReasonNetworkFound, "The container network is there")
}

func imageReady(out Outcome) metav1.Condition {
	return step(out, tunnelv1.ConditionImageReady, out.Image != "", tunnelv1.ReasonImageReady, "The image of the proxies is there")
}

func proxiesReady(out Outcome) metav1.Condition {
	return step(out, tunnelv1.ConditionProxiesReady, out.State == tunnelv1.StateRunning, tunnelv1.ReasonProxiesReady, "Both proxies run")
}

// tunnelsReady reports no news while the proxies are asked about what was known before.
func tunnelsReady(out Outcome) (c metav1.Condition, news bool) {
	const this = tunnelv1.ConditionTunnelsReady
	switch {
	case out.State == tunnelv1.StateFailed:
		return condition(this, metav1.ConditionFalse, tunnelv1.ReasonFailed, "The proxies have ended"), true
	case out.State != tunnelv1.StateRunning:
		return condition(this, metav1.ConditionUnknown, tunnelv1.ReasonWaiting, "Waits for "+tunnelv1.ConditionProxiesReady), true
	case out.Tunnels.Err != "":
		return condition(this, metav1.ConditionUnknown, tunnelv1.ReasonControlFailed, "The server proxy does not answer, which is tried again: "+out.Tunnels.Err), true
	case !out.Current:
		old := meta.FindStatusCondition(out.Proxy.Status.Conditions, this)
		known := old != nil && old.ObservedGeneration == out.Proxy.Generation && out.Proxy.Status.State == tunnelv1.StateRunning
		return condition(this, metav1.ConditionUnknown, tunnelv1.ReasonTunnelsPreparing, "Tunnels are being prepared, or removed"), !known
	}
	if failed := failures(out.Tunnels.Tunnels); len(failed) > 0 {
		return condition(this, metav1.ConditionFalse, tunnelv1.ReasonTunnelFailed, strings.Join(failed, "; ")), true
	}
	return condition(this, metav1.ConditionTrue, tunnelv1.ReasonTunnelsReady, "All tunnels accept connections"), true
}

// computeTerminating writes the status of a pair that is being deleted.
func computeTerminating(p *tunnelv1.ContainerNetworkTunnelProxy, why string, now time.Time) {
	s := &p.Status
	s.ObservedGeneration = p.Generation
	s.Message = conditions.Bound(why)
	var wanted []metav1.Condition
	for _, c := range []string{tunnelv1.ConditionNetworkReady, tunnelv1.ConditionImageReady} {
		if meta.FindStatusCondition(s.Conditions, c) == nil {
			wanted = append(wanted, condition(c, metav1.ConditionUnknown, tunnelv1.ReasonTerminating, "The object is being deleted"))
		}
	}
	conditions.Upsert(&s.Conditions, p.Generation, now, append(wanted,
		condition(tunnelv1.ConditionProxiesReady, metav1.ConditionFalse, tunnelv1.ReasonTerminating, why),
		condition(tunnelv1.ConditionTunnelsReady, metav1.ConditionFalse, tunnelv1.ReasonTerminating, "The object is being deleted"))...)
}
