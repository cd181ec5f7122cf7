package follow

import (
	"crypto/tls"
	"errors"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/bergctf/berg-operator/internal/gate/routing"
)

// State is what is known of the cluster. It is safe for concurrent use.
type State struct {
	table      *routing.Table
	controller gatewayv1.GatewayController
	ports      []int32
	// addresses are the Services that lead to the gate, each with the addresses that Gateways get from it.
	addresses []types.NamespacedName
	known     [][]gatewayv1.GatewayStatusAddress
	// chosen is the address of Gateways whose status does not have it yet.
	chosen map[types.NamespacedName]int
	// Changed is called for each object whose status may have changed. It must not call State.
	Changed func(routing.Key)
	// Certificates is called with the Secrets that Gateways name. It must not call State.
	Certificates func([]types.NamespacedName)

	mu           sync.Mutex
	classes      map[string]bool
	namespaces   map[string]labels.Set
	services     map[types.NamespacedName][]routing.ServicePort
	grants       map[types.NamespacedName]*gatewayv1.ReferenceGrant
	certificates map[types.NamespacedName]certificate
	gateways     map[types.NamespacedName]*gatewayv1.Gateway
	compiled     map[types.NamespacedName]*routing.Gateway
	httpRoutes   map[types.NamespacedName]*gatewayv1.HTTPRoute
	tlsRoutes    map[types.NamespacedName]*gatewayv1.TLSRoute
	routes       map[routing.Key]*routing.Route
	byService    index[types.NamespacedName]
	byNamespace  index[string]
	attached     map[listenerKey]int32
}

type certificate struct {
	value *tls.Certificate
	err   error
}

type listenerKey struct {
	gateway types.NamespacedName
	name    string
}

// index has the routes that refer to something.
type index[K comparable] map[K]map[routing.Key]bool

func (i index[K]) add(key K, route routing.Key) {
	if i[key] == nil {
		i[key] = map[routing.Key]bool{}
	}
	i[key][route] = true
}

func (i index[K]) remove(key K, route routing.Key) {
	if delete(i[key], route); len(i[key]) == 0 {
		delete(i, key)
	}
}

// The kinds of keys that name no route.
const (
	ClassKind   = "GatewayClass"
	GatewayKind = "Gateway"
)

var errNoCertificate = errors.New("there is no such Secret, or the gate may not read it")

// NewState returns a State that changes a table.
func NewState(table *routing.Table, controller gatewayv1.GatewayController, ports []int32, addresses []types.NamespacedName) *State {
	return &State{
		table: table, controller: controller, ports: ports, addresses: addresses, known: make([][]gatewayv1.GatewayStatusAddress, max(1, len(addresses))), chosen: map[types.NamespacedName]int{}, Changed: func(routing.Key) {}, Certificates: func([]types.NamespacedName) {},
		classes: map[string]bool{}, namespaces: map[string]labels.Set{}, services: map[types.NamespacedName][]routing.ServicePort{},
		grants: map[types.NamespacedName]*gatewayv1.ReferenceGrant{}, certificates: map[types.NamespacedName]certificate{},
		gateways: map[types.NamespacedName]*gatewayv1.Gateway{}, compiled: map[types.NamespacedName]*routing.Gateway{},
		httpRoutes: map[types.NamespacedName]*gatewayv1.HTTPRoute{}, tlsRoutes: map[types.NamespacedName]*gatewayv1.TLSRoute{},
		routes: map[routing.Key]*routing.Route{}, byService: index[types.NamespacedName]{}, byNamespace: index[string]{}, attached: map[listenerKey]int32{},
	}
}

// SetClass notes a GatewayClass.
func (s *State) SetClass(class *gatewayv1.GatewayClass) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ours := class.Spec.ControllerName == s.controller
	if ours != s.classes[class.Name] {
		s.classes[class.Name] = ours
		s.compileAll()
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
		s.compileAll()
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
	if previous == nil || previous.Generation != gateway.Generation || previous.UID != gateway.UID || s.address(previous) != s.address(gateway) {
		s.compileAll()
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
	s.compileAll()
}

// SetHTTPRoute notes an HTTPRoute.
func (s *State) SetHTTPRoute(route *gatewayv1.HTTPRoute) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := types.NamespacedName{Namespace: route.Namespace, Name: route.Name}
	previous, key := s.httpRoutes[name], routing.Key{Kind: routing.HTTPRoute, Namespace: name.Namespace, Name: name.Name}
	s.httpRoutes[name] = route
	if previous == nil || previous.Generation != route.Generation || previous.UID != route.UID {
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

// SetService notes the ports of a Service. One without endpoints, of type ExternalName, counts as missing.
func (s *State) SetService(service *corev1.Service) {
	s.setAddresses(service)
	var ports []routing.ServicePort
	for _, port := range service.Spec.Ports {
		protocol := routing.HTTP1
		if name := ptr.Deref(port.AppProtocol, ""); name == "kubernetes.io/h2c" || name == "grpc" {
			protocol = routing.H2C
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
	s.grants[types.NamespacedName{Namespace: grant.Namespace, Name: grant.Name}] = grant
	s.compileAll()
}

// DeleteGrant forgets a ReferenceGrant.
func (s *State) DeleteGrant(name types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.grants, name)
	s.compileAll()
}

// SetCertificate notes the certificate of a Secret, or why there is none.
func (s *State) SetCertificate(name types.NamespacedName, value *tls.Certificate, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.certificates[name] = certificate{value, err}
	s.compileAll()
}

// cluster is what translations read.
func (s *State) cluster() routing.Cluster {
	return routing.Cluster{
		Services: func(name types.NamespacedName) ([]routing.ServicePort, bool) {
			ports, found := s.services[name]
			return ports, found
		},
		Granted: s.granted,
		Labels:  func(name string) (labels.Set, bool) { set, found := s.namespaces[name]; return set, found },
		Certificate: func(name types.NamespacedName) (*tls.Certificate, error) {
			known, found := s.certificates[name]
			if !found {
				return nil, errNoCertificate
			}
			return known.value, known.err
		},
		Ports: s.ports,
	}
}

// granted reports whether a ReferenceGrant allows a reference.
func (s *State) granted(fromKind, fromNamespace, toKind string, to types.NamespacedName) bool {
	for name, grant := range s.grants {
		if name.Namespace != to.Namespace {
			continue
		}
		from := slices.ContainsFunc(grant.Spec.From, func(f gatewayv1.ReferenceGrantFrom) bool {
			return f.Group == gatewayv1.GroupName && string(f.Kind) == fromKind && string(f.Namespace) == fromNamespace
		})
		target := slices.ContainsFunc(grant.Spec.To, func(t gatewayv1.ReferenceGrantTo) bool {
			return t.Group == "" && string(t.Kind) == toKind && (t.Name == nil || string(*t.Name) == to.Name)
		})
		if from && target {
			return true
		}
	}
	return false
}

// compileAll translates all Gateways and routes: what they share has changed, which is rare.
func (s *State) compileAll() {
	cluster := s.cluster()
	compiled := make(map[types.NamespacedName]*routing.Gateway, len(s.gateways))
	var listeners []*routing.Listener
	var secrets []types.NamespacedName
	for name, gateway := range s.gateways {
		if !s.classes[string(gateway.Spec.GatewayClassName)] {
			continue
		}
		result := routing.CompileGateway(gateway, s.address(gateway), cluster)
		compiled[name] = &result
		listeners = append(listeners, result.Listeners...)
		secrets = append(secrets, certificateRefs(gateway)...)
	}
	s.compiled = compiled
	s.table.SetListeners(listeners)
	s.Certificates(secrets)
	for name := range s.httpRoutes {
		s.compileRoute(routing.Key{Kind: routing.HTTPRoute, Namespace: name.Namespace, Name: name.Name})
	}
	for name := range s.tlsRoutes {
		s.compileRoute(routing.Key{Kind: routing.TLSRoute, Namespace: name.Namespace, Name: name.Name})
	}
	for name := range s.gateways {
		s.Changed(routing.Key{Kind: GatewayKind, Namespace: name.Namespace, Name: name.Name})
	}
}

// certificateRefs returns the Secrets that a Gateway names.
func certificateRefs(gateway *gatewayv1.Gateway) []types.NamespacedName {
	var names []types.NamespacedName
	for i := range gateway.Spec.Listeners {
		if config := gateway.Spec.Listeners[i].TLS; config != nil {
			for _, ref := range config.CertificateRefs {
				if ptr.Deref(ref.Group, "") == "" && ptr.Deref(ref.Kind, "Secret") == "Secret" {
					names = append(names, types.NamespacedName{Namespace: string(ptr.Deref(ref.Namespace, gatewayv1.Namespace(gateway.Namespace))), Name: string(ref.Name)})
				}
			}
		}
	}
	return names
}

func (s *State) compileThose(keys map[routing.Key]bool) {
	for _, key := range slices.Collect(maps.Keys(keys)) {
		s.compileRoute(key)
	}
}

// compileRoute translates a route, or removes one that is gone.
func (s *State) compileRoute(key routing.Key) {
	name := types.NamespacedName{Namespace: key.Namespace, Name: key.Name}
	gateways := func(name types.NamespacedName) (*routing.Gateway, bool) { g, ours := s.compiled[name]; return g, ours }
	var route *routing.Route
	if object := s.httpRoutes[name]; object != nil && key.Kind == routing.HTTPRoute {
		compiled := routing.CompileHTTPRoute(object, gateways, s.cluster())
		route = &compiled
	}
	if object := s.tlsRoutes[name]; object != nil && key.Kind == routing.TLSRoute {
		compiled := routing.CompileTLSRoute(object, gateways, s.cluster())
		route = &compiled
	}
	s.replace(key, route)
}

// replace stores the translation of a route, nil for none, with all that is counted and indexed of it.
func (s *State) replace(key routing.Key, route *routing.Route) {
	if previous := s.routes[key]; previous != nil {
		for _, service := range previous.Services {
			s.byService.remove(service, key)
		}
		s.byNamespace.remove(key.Namespace, key)
		s.count(previous, -1)
	}
	if route == nil {
		delete(s.routes, key)
		s.table.Delete(key)
		return
	}
	s.routes[key] = route
	for _, service := range route.Services {
		s.byService.add(service, key)
	}
	s.byNamespace.add(key.Namespace, key)
	s.count(route, 1)
	s.table.Set(key, route)
	s.Changed(key)
}

// count adds to the number of routes of each listener of a route.
func (s *State) count(route *routing.Route, n int32) {
	for _, parent := range route.Parents {
		for _, attachment := range parent.Attachments {
			at := listenerKey{attachment.Listener.Gateway, attachment.Listener.Name}
			if s.attached[at] += n; s.attached[at] == 0 {
				delete(s.attached, at)
			}
			s.Changed(routing.Key{Kind: GatewayKind, Namespace: at.gateway.Namespace, Name: at.gateway.Name})
		}
	}
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
