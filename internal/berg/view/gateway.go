package view

import (
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/bergctf/berg-operator/internal/kit/gateadmin"
)

// Gateway is the Gateway of instances with its class, as the cluster has them. The operator and kubectl berg read here
// whether it serves a route.
type Gateway struct {
	Namespace, Name string
	// Object is nil if it does not exist.
	Object *gatewayv1.Gateway
	// Class is nil if it does not exist. Where ClassHidden is set, it could not be read.
	Class       *gatewayv1.GatewayClass
	ClassHidden bool
}

// String names the Gateway, its class and its controller, as far as they are known.
func (g Gateway) String() string {
	text := fmt.Sprintf("Gateway %s/%s", g.Namespace, g.Name)
	if g.Object == nil {
		return text
	}
	text += fmt.Sprintf(" (GatewayClass %s", g.Object.Spec.GatewayClassName)
	if g.Class != nil {
		text += fmt.Sprintf(", controller %s", g.Class.Spec.ControllerName)
	}
	return text + ")"
}

// ServedByGate reports whether the gate of this project serves the Gateway.
func (g Gateway) ServedByGate() bool {
	return g.Object != nil && g.Class != nil && g.Class.Spec.ControllerName == gateadmin.Controller
}

// Problem returns the reason why the Gateway serves no route at all, "" if it works.
func (g Gateway) Problem() string {
	if g.Object == nil {
		return fmt.Sprintf("%s does not exist", g)
	}
	conditions := g.Object.Status.Conditions
	accepted := meta.FindStatusCondition(conditions, string(gatewayv1.GatewayConditionAccepted))
	programmed := meta.FindStatusCondition(conditions, string(gatewayv1.GatewayConditionProgrammed))
	if programmed != nil && programmed.Status == metav1.ConditionTrue && (accepted == nil || accepted.Status != metav1.ConditionFalse) {
		return ""
	}
	answered := func(c *metav1.Condition) bool { return c != nil && c.Status == metav1.ConditionFalse }
	switch {
	case answered(accepted):
		return fmt.Sprintf("%s is not accepted by its controller: %s", g, sentence(accepted))
	case answered(programmed) && accepted != nil && accepted.Status == metav1.ConditionTrue:
		return fmt.Sprintf("%s is accepted, but not programmed by its controller: %s", g, sentence(programmed))
	case g.Class == nil && !g.ClassHidden:
		return fmt.Sprintf("no controller has accepted %s: the class does not exist", g)
	case g.Class != nil && !meta.IsStatusConditionTrue(g.Class.Status.Conditions, string(gatewayv1.GatewayClassConditionStatusAccepted)):
		return fmt.Sprintf("no controller has accepted %s, nor its class: the controller is not installed, or does not run", g)
	default:
		return fmt.Sprintf("no controller has accepted %s", g)
	}
}

// ListenerProblem returns the reason why a listener of a Gateway that works serves no route, "" if it does.
func (g Gateway) ListenerProblem(name string) string {
	if g.Listener(name) == nil {
		return fmt.Sprintf("%s has no listener %s", g, name)
	}
	for _, status := range g.Object.Status.Listeners {
		if string(status.Name) != name {
			continue
		}
		if c := meta.FindStatusCondition(status.Conditions, string(gatewayv1.ListenerConditionConflicted)); c != nil && c.Status == metav1.ConditionTrue {
			return fmt.Sprintf("listener %s of %s does not work: %s", name, g, sentence(c)) // which other conditions only refer to
		}
		for _, kind := range []gatewayv1.ListenerConditionType{gatewayv1.ListenerConditionResolvedRefs, gatewayv1.ListenerConditionProgrammed, gatewayv1.ListenerConditionAccepted} {
			if c := meta.FindStatusCondition(status.Conditions, string(kind)); c != nil && c.Status == metav1.ConditionFalse {
				return fmt.Sprintf("listener %s of %s does not work: %s", name, g, sentence(c))
			}
		}
	}
	return ""
}

// Listener returns a listener of the Gateway, nil if there is none.
func (g Gateway) Listener(name string) *gatewayv1.Listener {
	if g.Object == nil {
		return nil
	}
	for n := range g.Object.Spec.Listeners {
		if l := &g.Object.Spec.Listeners[n]; string(l.Name) == name {
			return l
		}
	}
	return nil
}

// Address returns an address at which a listener can be connected to, false if the status of the Gateway has none that may
// belong to a Gateway: a name would be resolved by a DNS server, and a loopback or a link is a host's own.
func (g Gateway) Address(listener string) (netip.AddrPort, bool) {
	l := g.Listener(listener)
	if l == nil {
		return netip.AddrPort{}, false
	}
	for _, a := range g.Object.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Value); err == nil && ip.IsGlobalUnicast() {
			return netip.AddrPortFrom(ip, uint16(l.Port)), true
		}
	}
	return netip.AddrPort{}, false
}

// Answer is the answer of a Gateway to a route.
type Answer int

// The answers.
const (
	// RoutePending: no controller has written a status for this Gateway.
	RoutePending Answer = iota
	RouteRefused
	RouteServed
)

// Answer returns the answer of the Gateway to a route of one of its listeners, by the status of the route, and for a route
// that is not served what the controller says. The first parent that has decided counts. Conditions of other Gateways are
// skipped.
func (g Gateway) Answer(parents []gatewayv1.RouteParentStatus, listener string) (Answer, string) {
	for _, p := range parents {
		ref := p.ParentRef
		if string(ref.Name) != g.Name || ref.Namespace != nil && string(*ref.Namespace) != g.Namespace || ref.SectionName != nil && string(*ref.SectionName) != listener {
			continue
		}
		accepted := meta.FindStatusCondition(p.Conditions, string(gatewayv1.RouteConditionAccepted))
		resolved := meta.FindStatusCondition(p.Conditions, string(gatewayv1.RouteConditionResolvedRefs))
		for _, c := range []*metav1.Condition{accepted, resolved} {
			if c != nil && c.Status == metav1.ConditionFalse {
				return RouteRefused, fmt.Sprintf("controller %s refuses it at listener %s of Gateway %s/%s: %s", p.ControllerName, listener, g.Namespace, g.Name, sentence(c))
			}
		}
		if accepted != nil && accepted.Status == metav1.ConditionTrue {
			return RouteServed, ""
		}
	}
	return RoutePending, fmt.Sprintf("listener %s of %s has not answered it yet", listener, g)
}

// sentence returns the reason and the message of a condition, shortened: a controller may write long ones.
func sentence(c *metav1.Condition) string {
	const maxMessage = 200
	text := []rune(c.Reason + ": " + c.Message)
	if len(text) > maxMessage {
		return string(text[:maxMessage-3]) + "..."
	}
	return string(text)
}
