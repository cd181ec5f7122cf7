package manifests

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/config"
)

func httpRoute(in Inputs, c bergv1.Container, p bergv1.Port) *gatewayv1.HTTPRoute {
	meta := routeMeta(in, c, p)
	// Empty for none: an annotation that a plan leaves out stays on its object.
	meta.Annotations = map[string]string{bergv1.AnnotationCause: string(in.Cause)}
	return &gatewayv1.HTTPRoute{
		ObjectMeta: meta,
		Spec: gatewayv1.HTTPRouteSpec{
			CommonRouteSpec: parent(in, Listener(in.Gateway, p)),
			Hostnames:       []gatewayv1.Hostname{routeHost(in, c, p)},
			Rules: []gatewayv1.HTTPRouteRule{{
				BackendRefs: []gatewayv1.HTTPBackendRef{{BackendRef: backend(c, p)}},
			}},
		},
	}
}

func tlsRoute(in Inputs, c bergv1.Container, p bergv1.Port) *gatewayv1.TLSRoute {
	return &gatewayv1.TLSRoute{
		ObjectMeta: routeMeta(in, c, p),
		Spec: gatewayv1.TLSRouteSpec{
			CommonRouteSpec: parent(in, Listener(in.Gateway, p)),
			Hostnames:       []gatewayv1.Hostname{routeHost(in, c, p)},
			Rules: []gatewayv1.TLSRouteRule{{
				BackendRefs: []gatewayv1.BackendRef{backend(c, p)},
			}},
		},
	}
}

// RouteName is the name of the route of a routed port.
func RouteName(c bergv1.Container, p bergv1.Port) string {
	return fmt.Sprintf("%s-%d", c.Hostname, p.Port)
}

// Listener returns the listener of the Gateway to which the route of a port attaches, "" for a port without a route.
func Listener(g config.Gateway, p bergv1.Port) string {
	switch p.EffectiveType() {
	case bergv1.PublicHTTPRoute:
		return g.HTTPListener
	case bergv1.PublicTLSRoute:
		return g.TLSListener
	case bergv1.InternalPort, bergv1.PublicPort:
	}
	return ""
}

func routeMeta(in Inputs, c bergv1.Container, p bergv1.Port) metav1.ObjectMeta {
	meta := in.meta(RouteName(c, p), "challenge-route")
	meta.Labels[bergv1.LabelHostname] = routeID(in, c, p)
	return meta
}

// routeID is the unguessable part of the host name of a routed port.
func routeID(in Inputs, c bergv1.Container, p bergv1.Port) string {
	return in.hostname(c.Hostname, fmt.Sprint(p.Port))
}

func routeHost(in Inputs, c bergv1.Container, p bergv1.Port) gatewayv1.Hostname {
	return gatewayv1.Hostname(routeID(in, c, p) + "." + in.Config.Domain)
}

func parent(in Inputs, listener string) gatewayv1.CommonRouteSpec {
	return gatewayv1.CommonRouteSpec{ParentRefs: []gatewayv1.ParentReference{{
		Group:       ptr.To(gatewayv1.Group(gatewayv1.GroupName)),
		Kind:        ptr.To(gatewayv1.Kind("Gateway")),
		Namespace:   ptr.To(gatewayv1.Namespace(in.Gateway.Namespace)),
		Name:        gatewayv1.ObjectName(in.Gateway.Name),
		SectionName: ptr.To(gatewayv1.SectionName(listener)),
	}}}
}

func backend(c bergv1.Container, p bergv1.Port) gatewayv1.BackendRef {
	return gatewayv1.BackendRef{BackendObjectReference: gatewayv1.BackendObjectReference{
		Name: gatewayv1.ObjectName(c.Hostname),
		Port: ptr.To(p.Port),
	}}
}
