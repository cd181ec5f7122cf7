package follow

import (
	"crypto/tls"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/bergctf/berg-operator/internal/gate/routing"
)

// SetClass notes a GatewayClass.
func (s *State) SetClass(class *gatewayv1.GatewayClass) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ours := class.Spec.ControllerName == s.controller
	if ours != s.classes[class.Name] {
		s.classes[class.Name] = ours
		s.compileGateways()
	}
	if ours {
		s.Changed(routing.Key{Kind: ClassKind, Name: class.Name})
	}
}

// DeleteClass forgets a GatewayClass.
func (s *State) DeleteClass(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.classes[name] {
		delete(s.classes, name)
		s.compileGateways()
	}
}

// SetGateway notes a Gateway.
func (s *State) SetGateway(gateway *gatewayv1.Gateway) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := types.NamespacedName{Namespace: gateway.Namespace, Name: gateway.Name}
	previous := s.gateways[name]
	s.gateways[name] = gateway
	if len(gateway.Status.Addresses) > 0 {
		delete(s.chosen, name)
	}
	// A Gateway that had the class before is compiled once more, so that its listeners go.
	ours := s.classes[string(gateway.Spec.GatewayClassName)] || s.compiled[name] != nil
	if ours && (previous == nil || previous.Generation != gateway.Generation || previous.UID != gateway.UID || s.address(previous) != s.address(gateway)) {
		s.compileGateways()
	} else {
		s.Changed(routing.Key{Kind: GatewayKind, Namespace: name.Namespace, Name: name.Name})
	}
}

// DeleteGateway forgets a Gateway.
func (s *State) DeleteGateway(name types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.gateways, name)
	delete(s.chosen, name)
	s.compileGateways()
}

// SetHTTPRoute notes an HTTPRoute.
func (s *State) SetHTTPRoute(route *gatewayv1.HTTPRoute) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := types.NamespacedName{Namespace: route.Namespace, Name: route.Name}
	previous, key := s.httpRoutes[name], routing.Key{Kind: routing.HTTPRoute, Namespace: name.Namespace, Name: name.Name}
	s.httpRoutes[name] = route
	if previous == nil || previous.Generation != route.Generation || previous.UID != route.UID || !maps.Equal(previous.Annotations, route.Annotations) {
		s.compileRoute(key)
	} else {
		s.Changed(key) // another client may have changed the status
	}
}

// SetTLSRoute notes a TLSRoute.
func (s *State) SetTLSRoute(route *gatewayv1.TLSRoute) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := types.NamespacedName{Namespace: route.Namespace, Name: route.Name}
	previous, key := s.tlsRoutes[name], routing.Key{Kind: routing.TLSRoute, Namespace: name.Namespace, Name: name.Name}
	s.tlsRoutes[name] = route
	if previous == nil || previous.Generation != route.Generation || previous.UID != route.UID {
		s.compileRoute(key)
	} else {
		s.Changed(key) // another client may have changed the status
	}
}

// DeleteRoute forgets a route.
func (s *State) DeleteRoute(key routing.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := types.NamespacedName{Namespace: key.Namespace, Name: key.Name}
	if key.Kind == routing.TLSRoute {
		delete(s.tlsRoutes, name)
	} else {
		delete(s.httpRoutes, name)
	}
	s.compileRoute(key)
}

// ProxyProtocol is the appProtocol of a Service's port whose pods want the address of each client, as a PROXY protocol header.
const ProxyProtocol = "berg.norelect.ch/proxy-protocol"

// SetService notes the ports of a Service. One without endpoints, of type ExternalName, counts as missing.
func (s *State) SetService(service *corev1.Service) {
	s.setAddresses(service)
	var ports []routing.ServicePort
	for _, port := range service.Spec.Ports {
		protocol := routing.HTTP1
		switch ptr.Deref(port.AppProtocol, "") {
		case "kubernetes.io/h2c", "grpc":
			protocol = routing.H2C
		case ProxyProtocol:
			protocol = routing.Proxied
		}
		ports = append(ports, routing.ServicePort{Name: port.Name, Number: port.Port, Protocol: protocol})
	}
	name := types.NamespacedName{Namespace: service.Namespace, Name: service.Name}
	s.mu.Lock()
	defer s.mu.Unlock()
	known, found := s.services[name]
	if service.Spec.Type == corev1.ServiceTypeExternalName {
		delete(s.services, name)
	} else {
		s.services[name] = ports
	}
	if _, remains := s.services[name]; found != remains || !slices.Equal(known, ports) {
		s.compileThose(s.byService[name])
	}
}

// DeleteService forgets a Service.
func (s *State) DeleteService(name types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.services, name)
	s.compileThose(s.byService[name])
}

// SetNamespace notes the labels of a namespace.
func (s *State) SetNamespace(name string, set labels.Set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, found := s.namespaces[name]
	s.namespaces[name] = set
	if !found || !maps.Equal(known, set) {
		s.compileThose(s.byNamespace[name])
	}
}

// DeleteNamespace forgets a namespace.
func (s *State) DeleteNamespace(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.namespaces, name)
}

// SetGrant notes a ReferenceGrant.
func (s *State) SetGrant(grant *gatewayv1.ReferenceGrant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := types.NamespacedName{Namespace: grant.Namespace, Name: grant.Name}
	previous := s.grants[name]
	s.grants[name] = grant
	if previous == nil || previous.Generation != grant.Generation || previous.UID != grant.UID {
		s.compileGranted(previous, grant)
	}
}

// DeleteGrant forgets a ReferenceGrant.
func (s *State) DeleteGrant(name types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	previous := s.grants[name]
	delete(s.grants, name)
	s.compileGranted(previous)
}

// compileGranted translates what grants concern: Gateways, and the routes of the namespaces that they name.
func (s *State) compileGranted(grants ...*gatewayv1.ReferenceGrant) {
	s.compileGateways()
	for _, grant := range grants {
		if grant == nil {
			continue
		}
		for _, from := range grant.Spec.From {
			s.compileThose(s.byNamespace[string(from.Namespace)])
		}
	}
}

// SetCertificate notes the certificate of a Secret, or why there is none.
func (s *State) SetCertificate(name types.NamespacedName, value *tls.Certificate, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.certificates[name] = certificate{value, err}
	s.compileGateways()
}

// GatewayStatus returns the conditions of a Gateway and its listeners, and false if it is not one of ours.
func (s *State) GatewayStatus(name types.NamespacedName) (routing.Gateway, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	compiled, ours := s.compiled[name]
	if !ours {
		return routing.Gateway{}, false
	}
	out := *compiled
	out.Statuses = slices.Clone(compiled.Statuses)
	for i := range out.Statuses {
		out.Statuses[i].AttachedRoutes = s.attached[listenerKey{name, string(out.Statuses[i].Name)}]
	}
	return out, true
}

// RouteParents returns the results of a route for Gateways of ours.
func (s *State) RouteParents(key routing.Key) []routing.Parent {
	s.mu.Lock()
	defer s.mu.Unlock()
	if route := s.routes[key]; route != nil {
		return route.Parents
	}
	return nil
}
