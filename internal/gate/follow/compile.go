package follow

import (
	"crypto/tls"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/gate/routing"
	"github.com/bergctf/berg-operator/internal/gate/usage"
)

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

// compileGateways translates all Gateways, and the routes of those whose translation has changed. A tenant who keeps changing its own
// Gateway costs the routes of others nothing. It runs for all Gateways in their order, because each one takes hosts from those
// after it.
func (s *State) compileGateways() {
	cluster := s.cluster()
	compiled, changed := make(map[types.NamespacedName]*routing.Gateway, len(s.gateways)), map[types.NamespacedName]bool{}
	taken := routing.Taken{}
	var listeners []*routing.Listener
	var secrets []types.NamespacedName
	for _, gateway := range slices.SortedFunc(maps.Values(s.gateways), s.compareGateways) {
		if !s.classes[string(gateway.Spec.GatewayClassName)] {
			continue
		}
		name := types.NamespacedName{Namespace: gateway.Namespace, Name: gateway.Name}
		result := routing.CompileGateway(gateway, s.address(gateway), taken, cluster)
		compiled[name] = &result
		if previous := s.compiled[name]; previous != nil && previous.Equal(result) {
			compiled[name] = previous // which its routes refer to
		} else {
			changed[name] = true
		}
		listeners = append(listeners, compiled[name].Listeners...)
		refs := certificateRefs(gateway)
		secrets = append(secrets, refs[:min(len(refs), maxCertificates-len(secrets))]...)
	}
	s.secrets = secrets
	for name := range s.compiled {
		if compiled[name] == nil {
			changed[name] = true
		}
	}
	s.compiled = compiled
	if len(changed) > 0 {
		s.table.SetListeners(listeners)
		s.Certificates(secrets)
		s.compileRoutesOn(changed)
	}
	for name := range s.gateways {
		s.Changed(routing.Key{Kind: GatewayKind, Namespace: name.Namespace, Name: name.Name})
	}
}

// compileRoutesOn translates the routes that refer to one of some Gateways.
func (s *State) compileRoutesOn(gateways map[types.NamespacedName]bool) {
	compile := func(kind string, name types.NamespacedName, parents []gatewayv1.ParentReference) {
		if slices.ContainsFunc(parents, func(p gatewayv1.ParentReference) bool {
			return gateways[types.NamespacedName{Namespace: string(ptr.Deref(p.Namespace, gatewayv1.Namespace(name.Namespace))), Name: string(p.Name)}]
		}) {
			s.compileRoute(routing.Key{Kind: kind, Namespace: name.Namespace, Name: name.Name})
		}
	}
	for name, route := range s.httpRoutes {
		compile(routing.HTTPRoute, name, route.Spec.ParentRefs)
	}
	for name, route := range s.tlsRoutes {
		compile(routing.TLSRoute, name, route.Spec.ParentRefs)
	}
}

// compareGateways orders Gateways: those of Preferred go first, then the older ones.
func (s *State) compareGateways(a, b *gatewayv1.Gateway) int {
	switch first, second := a.Namespace == s.Preferred, b.Namespace == s.Preferred; {
	case first && !second:
		return -1
	case second && !first:
		return 1
	}
	return routing.CompareAge(a, b)
}

// Each Secret costs a watch, also one that the gate may not read. A tenant's Gateway may name thousands, so at most so many of one Gateway
// are read, and so many of all, those of Preferred first.
const maxGatewayCertificates, maxCertificates = 64, 512

// certificateRefs returns the Secrets that a Gateway names.
func certificateRefs(gateway *gatewayv1.Gateway) []types.NamespacedName {
	var names []types.NamespacedName
	for i := range gateway.Spec.Listeners {
		if config := gateway.Spec.Listeners[i].TLS; config != nil {
			for _, ref := range config.CertificateRefs {
				name := types.NamespacedName{Namespace: string(ptr.Deref(ref.Namespace, gatewayv1.Namespace(gateway.Namespace))), Name: string(ref.Name)}
				secret := ptr.Deref(ref.Group, "") == "" && ptr.Deref(ref.Kind, "Secret") == "Secret"
				if secret && len(names) < maxGatewayCertificates && !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
		}
	}
	return names
}

// certificateTime is how long a replica waits for certificates before it is ready: the gate may lack the right to read one.
const certificateTime = 10 * time.Second

// CertificatesKnown reports whether each certificate that Gateways name was read, or the time for it is over. A replica without them would
// refuse players.
func (s *State) CertificatesKnown() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.started) > certificateTime {
		return true
	}
	return !slices.ContainsFunc(s.secrets, func(name types.NamespacedName) bool { _, found := s.certificates[name]; return !found })
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
		compiled.RecordIn(s.use(key, object.UID, object.Spec.Hostnames))
		route = &compiled
	}
	if object := s.tlsRoutes[name]; object != nil && key.Kind == routing.TLSRoute {
		compiled := routing.CompileTLSRoute(object, gateways, s.cluster())
		compiled.RecordIn(s.use(key, object.UID, object.Spec.Hostnames))
		route = &compiled
	}
	s.replace(key, route)
}

// use returns the Use of a route. The labels of an instance's namespace name the Challenge. A tenant may label its own namespace, but only the
// operator sets LabelManagedBy, by the policy that belongs to the Gateway.
func (s *State) use(key routing.Key, uid types.UID, hostnames []gatewayv1.Hostname) *usage.Use {
	set, host := s.namespaces[key.Namespace], ""
	if len(hostnames) > 0 {
		host = string(hostnames[0])
	}
	var challenge usage.Challenge
	if set[bergv1.LabelManagedBy] == bergv1.ManagedBy {
		challenge = usage.Challenge{Namespace: set[bergv1.LabelChallengeNamespace], Name: set[bergv1.LabelChallenge]}
	}
	return s.Usage.Use(usage.Key(key), string(uid), host, challenge)
}

// replace stores the translation of a route, nil for none, with all that is counted and indexed of it. The table changes after
// the counts and indexes, and the status is announced last: a writer that reads the State finds the new one.
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
		s.Usage.End(usage.Key(key))
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
			key := listenerKey{attachment.Listener.Gateway, attachment.Listener.Name}
			if s.attached[key] += n; s.attached[key] == 0 {
				delete(s.attached, key)
			}
			s.Changed(routing.Key{Kind: GatewayKind, Namespace: key.gateway.Namespace, Name: key.gateway.Name})
		}
	}
}

// address returns the number of the address that a Gateway has.
func (s *State) address(gateway *gatewayv1.Gateway) int {
	for i, addresses := range s.known {
		for _, current := range gateway.Status.Addresses {
			if slices.ContainsFunc(addresses, func(a gatewayv1.GatewayStatusAddress) bool { return a.Value == current.Value }) {
				return i
			}
		}
	}
	return 0
}
