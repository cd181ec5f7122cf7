package routing

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/bergctf/berg-operator/internal/gate/usage"
)

// Attachment is a listener that serves a route, with the host names that both have.
type Attachment struct {
	Listener *Listener
	Hosts    []string
}

// Parent is the result for one parentRef of a route.
type Parent struct {
	Ref         gatewayv1.ParentReference
	Attachments []Attachment
	Conditions  []metav1.Condition
}

// Route is the translation of an HTTPRoute or a TLSRoute.
type Route struct {
	Parents []Parent
	Created time.Time
	Rules   []*Rule   // of an HTTPRoute
	Targets []Backend // of a TLSRoute
	// Services to which the route refers, whether they exist or not.
	Services []types.NamespacedName
}

// RecordIn lets a Use record what players do with the route.
func (r *Route) RecordIn(use *usage.Use) {
	for i := range r.Rules {
		for j := range r.Rules[i].Backends {
			r.Rules[i].Backends[j].Use = use
		}
	}
	for i := range r.Targets {
		r.Targets[i].Use = use
	}
}

// Gateways returns the translation of a Gateway, and false if it is not one of ours.
type Gateways func(types.NamespacedName) (*Gateway, bool)

// CompileHTTPRoute translates an HTTPRoute.
func CompileHTTPRoute(route *gatewayv1.HTTPRoute, gateways Gateways, cluster Cluster) Route {
	rules, unresolved, unsupported := compileRules(route, cluster.Services, cluster.Granted)
	out := Route{Created: route.CreationTimestamp.Time, Rules: rules}
	for i := range route.Spec.Rules {
		for j := range route.Spec.Rules[i].BackendRefs {
			out.Services = append(out.Services, serviceName(route.Spec.Rules[i].BackendRefs[j].BackendRef, route.Namespace))
		}
	}
	out.Parents = attach(HTTPRoute, &route.ObjectMeta, route.Spec.ParentRefs, route.Spec.Hostnames, gateways, cluster, unresolved, unsupported)
	return out
}

// CompileTLSRoute translates a TLSRoute.
func CompileTLSRoute(route *gatewayv1.TLSRoute, gateways Gateways, cluster Cluster) Route {
	out := Route{Created: route.CreationTimestamp.Time}
	var first *problem
	for i := range route.Spec.Rules {
		for _, ref := range route.Spec.Rules[i].BackendRefs {
			backend, unresolved := resolve(ref, TLSRoute, route.Namespace, cluster.Services, cluster.Granted)
			if first == nil {
				first = unresolved
			}
			out.Targets = append(out.Targets, backend)
			out.Services = append(out.Services, serviceName(ref, route.Namespace))
		}
	}
	out.Parents = attach(TLSRoute, &route.ObjectMeta, route.Spec.ParentRefs, route.Spec.Hostnames, gateways, cluster, first, nil)
	return out
}

func serviceName(ref gatewayv1.BackendRef, namespace string) types.NamespacedName {
	return types.NamespacedName{Namespace: string(ptr.Deref(ref.Namespace, gatewayv1.Namespace(namespace))), Name: string(ref.Name)}
}

// attach finds the listeners of each parent that is a Gateway of ours. Other parents have no result: their controller writes it.
// A parent that refuses the route gets no attachments, and the other parents serve it.
func attach(kind string, meta *metav1.ObjectMeta, refs []gatewayv1.ParentReference, hostnames []gatewayv1.Hostname,
	gateways Gateways, cluster Cluster, unresolved *problem, unsupported error,
) []Parent {
	var parents []Parent
	for _, ref := range refs {
		if ptr.Deref(ref.Group, gatewayv1.GroupName) != gatewayv1.GroupName || ptr.Deref(ref.Kind, "Gateway") != "Gateway" {
			continue
		}
		name := types.NamespacedName{Namespace: string(ptr.Deref(ref.Namespace, gatewayv1.Namespace(meta.Namespace))), Name: string(ref.Name)}
		gateway, ours := gateways(name)
		if !ours {
			continue
		}
		parent := Parent{Ref: ref}
		attachments, refused := findListeners(kind, meta.Namespace, ref, hostnames, gateway, cluster)
		accepted := newCondition(string(gatewayv1.RouteConditionAccepted), true, string(gatewayv1.RouteReasonAccepted), "the route is accepted", meta.Generation)
		switch {
		case refused != nil:
			accepted.Status, accepted.Reason, accepted.Message = metav1.ConditionFalse, string(refused.reason), refused.message
		case unsupported != nil:
			accepted.Status, accepted.Reason, accepted.Message = metav1.ConditionFalse, string(gatewayv1.RouteReasonUnsupportedValue), unsupported.Error()
		default:
			parent.Attachments = attachments
		}
		resolved := newCondition(string(gatewayv1.RouteConditionResolvedRefs), true, string(gatewayv1.RouteReasonResolvedRefs), "all references are resolved", meta.Generation)
		if unresolved != nil {
			resolved.Status, resolved.Reason, resolved.Message = metav1.ConditionFalse, string(unresolved.reason), unresolved.message
		}
		parent.Conditions = []metav1.Condition{accepted, resolved}
		parents = append(parents, parent)
	}
	return parents
}

// findListeners returns the listeners of a Gateway that a parentRef means, and the hosts that each shares with the route.
func findListeners(kind, namespace string, ref gatewayv1.ParentReference, hostnames []gatewayv1.Hostname, gateway *Gateway, cluster Cluster) ([]Attachment, *problem) {
	var meant, allowed []*Listener
	set, _ := cluster.Labels(namespace)
	for _, listener := range gateway.Listeners {
		if ref.SectionName != nil && string(*ref.SectionName) != listener.Name || ref.Port != nil && *ref.Port != listener.Port.Number {
			continue
		}
		meant = append(meant, listener)
		if slices.Contains(listener.Kinds, kind) && listener.namespaces(namespace, set) {
			allowed = append(allowed, listener)
		}
	}
	switch {
	case len(meant) == 0:
		return nil, &problem{gatewayv1.RouteReasonNoMatchingParent, "the Gateway has no listener with this sectionName and port"}
	case len(allowed) == 0:
		return nil, &problem{gatewayv1.RouteReasonNotAllowedByListeners, "allowedRoutes of the listener does not allow a " + kind + " of namespace " + namespace}
	}
	var attachments []Attachment
	for _, listener := range allowed {
		var hosts []string
		for _, hostname := range hostnames {
			if host, shared := intersect(listener.Hostname, string(hostname)); shared {
				hosts = append(hosts, host)
			}
		}
		if len(hostnames) == 0 {
			hosts = []string{listener.Hostname}
		}
		if len(hosts) > 0 {
			attachments = append(attachments, Attachment{listener, hosts})
		}
	}
	if len(attachments) == 0 {
		return nil, &problem{gatewayv1.RouteReasonNoMatchingListenerHostname, "no listener has a hostname that contains one of the route"}
	}
	return attachments, nil
}
