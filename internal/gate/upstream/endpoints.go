package upstream

import (
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// Address is one pod's port.
type Address struct {
	// Pod is the UID of the pod, or its address where the EndpointSlice names none. Connections are kept for the same pod only:
	// another pod may get the IP address later.
	Pod string
	// HostPort to connect to.
	HostPort string
}

// Endpoints are the ready addresses of Services. It is safe for concurrent use.
type Endpoints struct {
	mu       sync.RWMutex
	slices   map[types.NamespacedName]*discoveryv1.EndpointSlice
	services map[types.NamespacedName]*service
	// changed is closed at the next change.
	changed chan struct{}
}

// service is a Service as its EndpointSlices have it.
type service struct {
	slices []string // names
	// ports has the addresses of the ports that were asked for since the last change. A tenant may write an EndpointSlice with
	// thousands of ports, each of which all its addresses have.
	ports map[string][]Address
}

// NewEndpoints returns Endpoints without addresses.
func NewEndpoints() *Endpoints {
	return &Endpoints{
		slices: map[types.NamespacedName]*discoveryv1.EndpointSlice{}, services: map[types.NamespacedName]*service{}, changed: make(chan struct{}),
	}
}

// Set replaces what an EndpointSlice has, which the caller must not change afterwards. A Service may have several EndpointSlices,
// which change one after another. Each replaces only its own part.
func (e *Endpoints) Set(slice *discoveryv1.EndpointSlice) {
	e.mu.Lock()
	defer e.mu.Unlock()
	key := types.NamespacedName{Namespace: slice.Namespace, Name: slice.Name}
	e.remove(key)
	e.slices[key] = slice
	name := serviceName(slice)
	if e.services[name] == nil {
		e.services[name] = &service{ports: map[string][]Address{}}
	}
	e.services[name].slices = append(e.services[name].slices, slice.Name)
	clear(e.services[name].ports)
	close(e.changed)
	e.changed = make(chan struct{})
}

func serviceName(slice *discoveryv1.EndpointSlice) types.NamespacedName {
	return types.NamespacedName{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}
}

// Changed returns a channel that is closed when the next EndpointSlice is set.
func (e *Endpoints) Changed() <-chan struct{} {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.changed
}

// Delete removes what an EndpointSlice had.
func (e *Endpoints) Delete(slice types.NamespacedName) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.remove(slice)
}

func (e *Endpoints) remove(key types.NamespacedName) {
	slice, found := e.slices[key]
	if !found {
		return
	}
	delete(e.slices, key)
	s := e.services[serviceName(slice)]
	s.slices = slices.DeleteFunc(s.slices, func(name string) bool { return name == key.Name })
	clear(s.ports)
	if len(s.slices) == 0 {
		delete(e.services, serviceName(slice))
	}
}

// Addresses returns the ready addresses of a Service's port, in random order. The port is named as in the Service; "" is its only one.
func (e *Endpoints) Addresses(name types.NamespacedName, port string) []Address {
	e.mu.RLock()
	s, found, known := e.services[name], []Address(nil), false
	if s != nil {
		found, known = s.ports[port]
	}
	e.mu.RUnlock()
	if s != nil && !known {
		found = e.join(name, port)
	}
	if len(found) < 2 {
		return found
	}
	shuffled := slices.Clone(found)
	rand.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	return shuffled
}

// join computes the addresses of a port from all EndpointSlices of its Service.
func (e *Endpoints) join(name types.NamespacedName, port string) (joined []Address) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.services[name]
	if s == nil {
		return nil
	}
	for _, slice := range s.slices {
		joined = append(joined, ready(e.slices[types.NamespacedName{Namespace: name.Namespace, Name: slice}], port)...)
	}
	s.ports[port] = joined
	return joined
}

// ready returns the addresses of an EndpointSlice that are ready, with a port.
func ready(slice *discoveryv1.EndpointSlice, port string) (all []Address) {
	n := slices.IndexFunc(slice.Ports, func(p discoveryv1.EndpointPort) bool { return p.Port != nil && ptr.Deref(p.Name, "") == port })
	if n < 0 {
		return nil
	}
	number := strconv.Itoa(int(*slice.Ports[n].Port))
	for i := range slice.Endpoints {
		endpoint := &slice.Endpoints[i]
		// A Service that publishes pods that are not ready calls one ready that ends, whose address may be another pod's soon.
		if !ptr.Deref(endpoint.Conditions.Ready, true) || ptr.Deref(endpoint.Conditions.Terminating, false) || len(endpoint.Addresses) == 0 {
			continue
		}
		pod := strings.ReplaceAll(endpoint.Addresses[0], ":", "-")
		if endpoint.TargetRef != nil {
			pod = string(endpoint.TargetRef.UID)
		}
		all = append(all, Address{pod, net.JoinHostPort(endpoint.Addresses[0], number)})
	}
	return all
}
