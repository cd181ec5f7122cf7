package status

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/berg/view"
	"github.com/bergctf/berg-operator/internal/kit/gateadmin"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// obstacle is the reason why players do not reach an instance whose pods run.
type obstacle struct {
	condition, reason, message string
	// refused: waiting does not remove it.
	refused bool
	// settles is when it counts: a controller needs a moment for a new object. Zero: it counts now.
	settles time.Time
}

// findObstacle returns the first obstacle between players and the pods of an instance, nil if there is none. The order is the
// order of the steps: the Gateway, the Service, the route, and then the answer of the gate.
func findObstacle(out Outcome) *obstacle {
	if out.Pinned == nil {
		return nil
	}
	for _, c := range out.Pinned.Containers {
		for _, p := range c.Ports {
			// No Service leads to a container that waits for the flag.
			if !p.Public() || out.Prepared && manifests.WaitsForFlag(c) {
				continue
			}
			if o := out.findPortObstacle(c, p); o != nil {
				return o
			}
		}
	}
	if u := out.Unserved; u != nil {
		return &obstacle{condition: bergv1.ConditionRoutesCreated, reason: u.Reason, message: u.Message}
	}
	return nil
}

// findPortObstacle looks along the way of a player, from the Gateway to the pods, and returns the first obstacle. An answer that
// is still missing is an obstacle only after settles.
func (out Outcome) findPortObstacle(c bergv1.Container, p bergv1.Port) *obstacle {
	listener := manifests.Listener(out.Listeners, p)
	if listener != "" {
		if text := out.Ways.Gateway.Problem(); text != "" {
			return &obstacle{condition: bergv1.ConditionRoutesCreated, reason: bergv1.ReasonGatewayNotReady, message: text, refused: true}
		}
		if text := out.Ways.Gateway.ListenerProblem(listener); text != "" {
			return &obstacle{condition: bergv1.ConditionRoutesCreated, reason: bergv1.ReasonGatewayNotReady, message: text, refused: true}
		}
		if o := out.Ways.Gate.findAbsence(out.Ways.Gateway); o != nil {
			return o
		}
	}
	if o := out.findServiceObstacle(manifests.PublicServiceName(c, p), newestStart(out.Observed, c.Hostname)); o != nil {
		return o
	}
	if listener == "" {
		return nil
	}
	name := manifests.RouteName(c, p)
	route, exists := out.Ways.Routes[name]
	if !exists {
		if !stoppedAt(out.Problem, bergv1.ConditionRoutesCreated) {
			return nil // it was just created
		}
		return &obstacle{
			condition: bergv1.ConditionRoutesCreated, reason: out.Problem.Reason, refused: true,
			message: fmt.Sprintf("Route %s does not exist: %s", name, out.Problem.Message),
		}
	}
	o := &obstacle{condition: bergv1.ConditionRoutesCreated, settles: route.Created.Add(settleTime)}
	switch answer, text := out.Ways.Gateway.Answer(route.Parents, listener); answer {
	case view.RouteRefused:
		o.reason, o.refused, o.message = bergv1.ReasonRouteRefused, true, fmt.Sprintf("Route %s: %s", name, text)
	case view.RoutePending:
		if out.Ways.Gate != nil && out.Gate != ConnectionNotMade {
			return nil // its replicas are asked, and serve a route before one of them writes its status
		}
		o.reason, o.message = bergv1.ReasonRoutePending, fmt.Sprintf("Route %s: %s", name, text)
	case view.RouteServed:
		return nil
	}
	return o
}

// findServiceObstacle: the Services of an instance exist unless the build stopped before them.
func (out Outcome) findServiceObstacle(name string, since time.Time) *obstacle {
	service, exists := out.Ways.Services[name]
	switch {
	case !exists && stoppedAt(out.Problem, bergv1.ConditionServicesCreated):
		return &obstacle{
			condition: bergv1.ConditionServicesCreated, reason: bergv1.ReasonServiceMissing, refused: true,
			message: fmt.Sprintf("Service %s does not exist: %s", name, out.Problem.Message),
		}
	case !exists || service.Leads:
		return nil
	case service.Created.After(since):
		since = service.Created
	}
	return &obstacle{
		condition: bergv1.ConditionServicesCreated, reason: bergv1.ReasonNoEndpoints, settles: since.Add(settleTime),
		message: fmt.Sprintf("Service %s leads to no pod: it has no EndpointSlice with an endpoint", name),
	}
}

// stoppedAt reports whether a problem keeps a step from being done.
func stoppedAt(p *outcome.Problem, step string) bool {
	return p != nil && slices.Index(steps, p.Condition) <= slices.Index(steps, step)
}

// newestStart returns when the newest container of the pods of a container started.
func newestStart(o Observed, container string) (newest time.Time) {
	live, _ := ContainerPods(o.Pods, container)
	for _, p := range live {
		for _, s := range p.Status.ContainerStatuses {
			if r := s.State.Running; r != nil && r.StartedAt.After(newest) {
				newest = r.StartedAt.Time
			}
		}
	}
	return newest
}

// relevantObstacle returns the obstacle that the status of an instance shows, nil for none. settling: there is one, and it may
// be gone in a moment, so that the instance is not Running yet and its status does not change. An instance that runs has been
// reached: a controller that answers a restored object a moment later changes nothing.
func relevantObstacle(out Outcome, pods podsSummary, now time.Time) (found *obstacle, settling bool) {
	o := findObstacle(out)
	ranBefore := out.Instance.Status.ReadyAt != nil
	switch {
	case o == nil, out.Problem != nil && (!ranBefore || out.Problem.Class != outcome.Retry):
		return nil, false
	case now.Before(o.settles):
		return nil, pods.ready && !ranBefore
	case !o.refused && !pods.ready:
		return nil, false
	default:
		return o, false
	}
}

// newCondition returns the condition of the step that an obstacle concerns.
func (o *obstacle) newCondition() metav1.Condition {
	status := metav1.ConditionUnknown
	if o.refused {
		status = metav1.ConditionFalse
	}
	return Condition(o.condition, status, o.reason, o.message)
}

// UntilReachable is the time until an obstacle of an instance counts, zero for never.
func UntilReachable(out Outcome, now time.Time) time.Duration {
	if o := findObstacle(out); o != nil && now.Before(o.settles) {
		return o.settles.Sub(now)
	}
	return 0
}

// GateTarget is a listener of the Gateway with the host name of an instance.
type GateTarget struct {
	Address netip.AddrPort
	// Host is the name of a TLS handshake, "" where the listener speaks no TLS, or the author turned connections off.
	Host string
}

// ToGate returns the listeners of the Gateway to which the operator connects before an instance is Running for the first time:
// a connection and a TLS handshake, without a request. It is empty while a step is missing, and without an address.
func ToGate(out Outcome, now time.Time) (all []GateTarget) {
	for _, routed := range routedPorts(out, now) {
		address, known := out.Ways.Gateway.Address(routed.listener)
		if !known {
			return nil
		}
		to := GateTarget{Address: address}
		if l := out.Ways.Gateway.Listener(routed.listener); l.Protocol == gatewayv1.HTTPSProtocolType || l.Protocol == gatewayv1.TLSProtocolType && routed.port.ConnectsAtStart() {
			to.Host = routed.host
		}
		all = append(all, to)
	}
	return all
}

// routedPort is a port with its host name and the listener of the Gateway that serves it.
type routedPort struct {
	port           bergv1.Port
	host, listener string
}

// routedPorts returns the ports of an instance that has all but a connection through the Gateway; none while a step is missing.
func routedPorts(out Outcome, now time.Time) (all []routedPort) {
	if !connects(out) || !checkPods(out.Observed, now).ready || findObstacle(out) != nil {
		return nil
	}
	n := 0
	for _, c := range out.Pinned.Containers {
		for _, p := range c.Ports {
			index := n
			n++
			listener := manifests.Listener(out.Listeners, p)
			// Nothing answers in a prepared container that waits for the flag. The player's instance is asked about.
			awaits := out.Prepared && manifests.WaitsForFlag(c)
			if listener == "" || awaits || index >= len(out.Endpoints) || out.Endpoints[index].Service == nil {
				continue
			}
			all = append(all, routedPort{p, out.Endpoints[index].Service.Hostname, listener})
		}
	}
	return all
}

// describeRoutes says whether the operator has connected to the Gateway. Until this process has tried, the status keeps its
// earlier statement.
func describeRoutes(out Outcome) string {
	text := fmt.Sprintf("In place, and served by Gateway %s/%s", out.Ways.Gateway.Namespace, out.Ways.Gateway.Name)
	switch out.Gate {
	case ConnectionMade:
		if out.Ways.Gate != nil {
			return text + ": each replica of the gate that is ready serves them and reaches the pods"
		}
		return text + ", to which the operator has connected"
	case ConnectionNotMade:
		return text + ", as its status says. The operator does not reach the Gateway, so it has tried no connection"
	case ConnectionUnknown:
		before := meta.FindStatusCondition(out.Instance.Status.Conditions, bergv1.ConditionRoutesCreated)
		if out.Instance.Status.ReadyAt != nil && before != nil && before.Status == metav1.ConditionTrue {
			return before.Message
		}
	}
	return "In place"
}

// findAbsence returns the obstacle that no replica of the gate is ready. While a single replica is replaced, there is none for a moment.
func (g *Gate) findAbsence(gateway view.Gateway) *obstacle {
	if g == nil || len(g.Replicas) > 0 {
		return nil
	}
	return &obstacle{
		condition: bergv1.ConditionRoutesCreated, reason: bergv1.ReasonGatewayNotReady, refused: true, settles: g.AbsentSince.Add(settleTime),
		message: fmt.Sprintf("no replica of the gate, which serves %s, is ready in namespace %s: kubectl get pods -n %s -l app.kubernetes.io/name=%s", gateway, g.Namespace, g.Namespace, gateadmin.Name),
	}
}

// AskedHost is a host name of an instance about which the gate is asked. Connects: the gate also connects to the pods behind it.
type AskedHost struct {
	Name     string
	Connects bool
}

// ToAsk returns the hosts about which each replica of the gate is asked before an instance is Running for the first time. It is empty
// while a step is missing.
func ToAsk(out Outcome, now time.Time) (all []AskedHost) {
	for _, routed := range routedPorts(out, now) {
		all = append(all, AskedHost{routed.host, routed.port.ConnectsAtStart()})
	}
	return all
}

// NewUnserved returns why the gate does not serve an instance, by the answer of a replica. unreached: it serves the hosts, and does not
// reach a pod.
func NewUnserved(gateway view.Gateway, answer string, unreached bool) *Unserved {
	reason := bergv1.ReasonRoutePending
	if unreached {
		reason = bergv1.ReasonPodUnreached
	}
	return &Unserved{reason, fmt.Sprintf("%s: %s", gateway, answer)}
}
