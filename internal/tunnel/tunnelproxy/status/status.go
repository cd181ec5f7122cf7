package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/podstate"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

const failedMessage = "The proxies have failed and are not restarted"

// Compute writes the status of a live pair, and returns its Ready. p is the problem that keeps the pair from the next
// step; nil for none. A state Failed is final: only the list of tunnels follows the spec after it.
func Compute(out Outcome, p *outcome.Problem, now time.Time) reconcile.Ready {
	proxy := out.Proxy
	s := &proxy.Status
	if s.State == tunnelv1.StateFailed {
		computeAfterEnd(proxy, now)
		return readyFailed(s.Message)
	}
	wanted := []metav1.Condition{networkReady(out, p), imageReady(out, p), proxiesReady(out, p)}
	if c, known := tunnelsReady(out); known {
		wanted = append(wanted, c)
	}
	if c, known := serverReachable(out); known {
		wanted = append(wanted, c)
	}
	s.TunnelStatuses, s.TunnelConfigurationVersion = applied(out, now)
	// Until the proxies have answered, the status describes the tunnels of an older generation.
	if out.State != tunnelv1.StateRunning || out.Current {
		s.ObservedGeneration = proxy.Generation
	}
	s.Message = statusMessage(out, p)
	s.State = out.State
	if out.Image != "" {
		s.ClientProxyContainerImage = out.Image
	}
	switch out.State {
	case tunnelv1.StateRunning, tunnelv1.StateStarting:
		s.ServerProxyBackend, s.ClientProxyPublish = string(out.Backend), string(out.Publish)
		setLocations(out)
	case tunnelv1.StateEmpty, tunnelv1.StatePending, tunnelv1.StateBuildingImage, tunnelv1.StateFailed:
		clearLocations(s)
	}
	conditions.Upsert(&s.Conditions, proxy.Generation, now, wanted...)
	return ready(out, p)
}

// ready computes Ready from the conditions: once the proxies run, it equals the condition of the tunnels.
func ready(out Outcome, p *outcome.Problem) reconcile.Ready {
	s := &out.Proxy.Status
	switch {
	case out.End != "":
		return readyFailed(s.Message)
	case p != nil:
		return reconcile.ReadyUnless(p, "", "")
	case out.State != tunnelv1.StateRunning:
		return reconcile.NotReady(tunnelv1.ReasonWaiting, s.Message)
	}
	c := meta.FindStatusCondition(s.Conditions, tunnelv1.ConditionTunnelsReady)
	stalled := out.Current && !out.Retrying || !out.Current && meta.IsStatusConditionTrue(s.Conditions, tunnelv1.ConditionStalled)
	return reconcile.Ready{Status: c.Status, Reason: c.Reason, Message: c.Message, Stalled: stalled && c.Status == metav1.ConditionFalse}
}

func readyFailed(message string) reconcile.Ready {
	return reconcile.Ready{Status: metav1.ConditionFalse, Reason: tunnelv1.ReasonFailed, Message: message, Stalled: true}
}

// clockTolerance is how much the start of a process may seem to move: it is measured against the boot of the machine,
// which moves when the clock is set.
const clockTolerance = 5 * time.Second

// setLocations writes where the proxies are.
func setLocations(out Outcome) {
	s := &out.Proxy.Status
	if out.Client != nil && podstate.Ready(out.Client) {
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
	if started := s.ServerProxyStartupTimestamp; started == nil || started.Sub(server.StartedAt).Abs() > clockTolerance {
		s.ServerProxyStartupTimestamp = &metav1.MicroTime{Time: server.StartedAt.Truncate(time.Microsecond)}
	}
	s.ServerProxyProcessID = ptr.To(server.Ready.PID)
	s.ServerProxyAddress, s.ServerProxyControlPort = server.Address, server.Ready.ControlPort
}

// clearLocations is for a pair without proxies. The files that they wrote stay until the object is deleted.
func clearLocations(s *tunnelv1.ContainerNetworkTunnelProxyStatus) {
	s.ClientProxyContainerID, s.ClientProxyAddress, s.ClientProxyControlPort, s.ClientProxyDataPort = "", "", 0, 0
	s.ServerProxyProcessID, s.ServerProxyStartupTimestamp, s.ServerProxyAddress, s.ServerProxyControlPort = nil, nil, "", 0
}

// statusMessage keeps the last message while nothing new is known.
func statusMessage(out Outcome, p *outcome.Problem) string {
	switch {
	case out.End != "":
		return conditions.Bound(failedMessage + ": " + out.End + ". Delete this object and create another one")
	case p != nil:
		return conditions.Bound(p.Message)
	case out.Tunnels.Err != "":
		return conditions.Bound(noAnswer(out))
	case out.State == tunnelv1.StateRunning && out.Current:
		hasFailed := failures(out.Tunnels.Tunnels)
		if len(hasFailed) > 0 {
			return conditions.Bound(fmt.Sprintf("%d of %d tunnels do not accept connections: %s", len(hasFailed), len(out.Tunnels.Tunnels), strings.Join(hasFailed, "; ")))
		}
		return fmt.Sprintf("%d tunnels accept connections", len(out.Tunnels.Tunnels))
	case out.State == tunnelv1.StateRunning && out.Proxy.Status.State != tunnelv1.StateRunning:
		return "Tunnels are being prepared"
	default:
		return out.Proxy.Status.Message
	}
}

func noAnswer(out Outcome) string {
	return "The server proxy does not answer; retrying: " + out.Tunnels.Err
}

// computeAfterEnd writes the status of a failed pair whose spec may have changed since. Tunnels that were added have
// failed too.
func computeAfterEnd(p *tunnelv1.ContainerNetworkTunnelProxy, now time.Time) {
	s := &p.Status
	if s.ObservedGeneration == p.Generation {
		return
	}
	s.TunnelStatuses = tunnelsAfterEnd(p, now)
	s.ObservedGeneration = p.Generation
	conditions.Upsert(&s.Conditions, p.Generation, now, slices.Clone(s.Conditions)...)
}

func condition(conditionType string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: conditionType, Status: status, Reason: reason, Message: message}
}

// step is the condition of a step. done: it is True unless a problem of its own shows on it.
func step(out Outcome, p *outcome.Problem, this string, done bool, reason, message string) metav1.Condition {
	switch {
	case out.End != "" && out.Step == this:
		return condition(this, metav1.ConditionFalse, endReason(this), out.End)
	case out.End != "" && !done:
		return condition(this, metav1.ConditionFalse, tunnelv1.ReasonFailed, failedMessage)
	case p != nil && p.Condition == this:
		return condition(this, metav1.ConditionFalse, p.Reason, p.Message)
	case !done && p != nil:
		return condition(this, metav1.ConditionUnknown, tunnelv1.ReasonWaiting, "Waiting for "+p.Condition)
	case !done:
		return condition(this, metav1.ConditionUnknown, tunnelv1.ReasonWaiting, "Not known yet")
	default:
		return condition(this, metav1.ConditionTrue, reason, message)
	}
}

func endReason(message string) string {
	if message == tunnelv1.ConditionImageReady {
		return tunnelv1.ReasonImageFailed
	}
	return tunnelv1.ReasonProxyEnded
}

func networkReady(out Outcome, p *outcome.Problem) metav1.Condition {
	const this = tunnelv1.ConditionNetworkReady
	if out.State == tunnelv1.StateRunning && !NetworkRuns(out.Network) {
		return condition(this, metav1.ConditionFalse, tunnelv1.ReasonNetworkGone,
			fmt.Sprintf("ContainerNetwork %s does not exist or is no longer Running; the tunnels keep working", out.Proxy.Spec.ContainerNetworkName))
	}
	return step(out, p, this, NetworkRuns(out.Network), tunnelv1.ReasonNetworkFound, "The container network is ready")
}

func imageReady(out Outcome, p *outcome.Problem) metav1.Condition {
	return step(out, p, tunnelv1.ConditionImageReady, out.Image != "", tunnelv1.ReasonImageReady, "The image of the proxies exists")
}

func proxiesReady(out Outcome, p *outcome.Problem) metav1.Condition {
	return step(out, p, tunnelv1.ConditionProxiesReady, out.State == tunnelv1.StateRunning, tunnelv1.ReasonProxiesReady, "Both proxies run")
}

// tunnelsReady is not known while the proxies are asked again about the same tunnels: then the condition stays.
func tunnelsReady(out Outcome) (c metav1.Condition, known bool) {
	const this = tunnelv1.ConditionTunnelsReady
	switch {
	case out.State == tunnelv1.StateFailed:
		return condition(this, metav1.ConditionFalse, tunnelv1.ReasonFailed, "The proxies have ended"), true
	case out.State != tunnelv1.StateRunning:
		return condition(this, metav1.ConditionUnknown, tunnelv1.ReasonWaiting, "Waiting for "+tunnelv1.ConditionProxiesReady), true
	case out.Tunnels.Err != "":
		return condition(this, metav1.ConditionUnknown, tunnelv1.ReasonControlFailed, noAnswer(out)), true
	case !out.Current:
		old := meta.FindStatusCondition(out.Proxy.Status.Conditions, this)
		keep := old != nil && old.ObservedGeneration == out.Proxy.Generation && out.Proxy.Status.State == tunnelv1.StateRunning
		return condition(this, metav1.ConditionUnknown, tunnelv1.ReasonTunnelsPreparing, "Tunnels are being prepared or removed"), !keep
	}
	if hasFailed := failures(out.Tunnels.Tunnels); len(hasFailed) > 0 {
		return condition(this, metav1.ConditionFalse, tunnelv1.ReasonTunnelFailed, strings.Join(hasFailed, "; ")), true
	}
	return condition(this, metav1.ConditionTrue, tunnelv1.ReasonTunnelsReady, "All tunnels accept connections"), true
}

// serverReachable is not known until the server proxy has checked all servers, unless one of them does not answer. While it is not known,
// the condition stays.
func serverReachable(out Outcome) (c metav1.Condition, known bool) {
	const this = tunnelv1.ConditionServerReachable
	if out.State != tunnelv1.StateRunning {
		known := meta.FindStatusCondition(out.Proxy.Status.Conditions, this) != nil
		return condition(this, metav1.ConditionUnknown, tunnelv1.ReasonWaiting, "Waiting for "+tunnelv1.ConditionProxiesReady), known
	}
	var away []string
	checked := len(out.Proxy.Spec.Tunnels) > 0
	for _, t := range out.Proxy.Spec.Tunnels {
		reason, known := out.Servers[t.Name]
		checked = checked && known
		if reason != "" {
			away = append(away, t.Name+": "+reason)
		}
	}
	if len(away) > 0 {
		return condition(this, metav1.ConditionFalse, tunnelv1.ReasonServerUnreachable,
			conditions.Bound("The servers of these tunnels do not answer; start them: "+strings.Join(away, "; "))), true
	}
	return condition(this, metav1.ConditionTrue, tunnelv1.ReasonServerReachable, "The servers of all tunnels accept connections"), checked
}

// ComputeTerminating writes the status of a pair that is being deleted. message says why the deletion waits.
func ComputeTerminating(p *tunnelv1.ContainerNetworkTunnelProxy, message string, now time.Time) {
	s := &p.Status
	s.ObservedGeneration = p.Generation
	s.Message = conditions.Bound(message)
	const deleted = "The object is being deleted"
	set := conditions.NewSetter(p, &s.Conditions, now)
	for _, c := range []string{tunnelv1.ConditionNetworkReady, tunnelv1.ConditionImageReady} {
		if meta.FindStatusCondition(s.Conditions, c) == nil {
			set(c, metav1.ConditionUnknown, tunnelv1.ReasonTerminating, deleted)
		}
	}
	set(tunnelv1.ConditionProxiesReady, metav1.ConditionFalse, tunnelv1.ReasonTerminating, message)
	set(tunnelv1.ConditionTunnelsReady, metav1.ConditionFalse, tunnelv1.ReasonTerminating, deleted)
	reconcile.NotReady(tunnelv1.ReasonTerminating, message).SetOn(&s.Conditions, p.Generation, now)
}
