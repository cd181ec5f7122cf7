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

// portKey is a port of a Service, by its name.
type portKey struct {
	service types.NamespacedName
	port    string
}

// Endpoints are the ready addresses of Services. It is safe for concurrent use.
type Endpoints struct {
	mu sync.RWMutex
	// slices has the content of each EndpointSlice, and services their names: a Service has one or more.
	slices   map[types.NamespacedName]sliceContent
	services map[types.NamespacedName][]string
	ports    map[portKey][]Address
	// changed is closed at the next change.
	changed chan struct{}
}

type sliceContent struct {
	service types.NamespacedName
	ports   map[string][]Address
}

// NewEndpoints returns Endpoints without addresses.
func NewEndpoints() *Endpoints {
	return &Endpoints{
		slices: map[types.NamespacedName]sliceContent{}, services: map[types.NamespacedName][]string{}, ports: map[portKey][]Address{}, changed: make(chan struct{}),
	}
}

// Set replaces what an EndpointSlice has. A Service may have several EndpointSlices, which change one after another. Each
// replaces only its own part.
func (e *Endpoints) Set(slice *discoveryv1.EndpointSlice) {
	content := sliceContent{
		service: types.NamespacedName{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]},
		ports:   map[string][]Address{},
	}
	for _, port := range slice.Ports {
		if port.Port == nil {
			continue
		}
		name := ptr.Deref(port.Name, "")
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
			content.ports[name] = append(content.ports[name], Address{pod, net.JoinHostPort(endpoint.Addresses[0], strconv.Itoa(int(*port.Port)))})
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	key := types.NamespacedName{Namespace: slice.Namespace, Name: slice.Name}
	e.remove(key)
	e.slices[key] = content
	e.services[content.service] = append(e.services[content.service], slice.Name)
	e.join(content.service, content)
	close(e.changed)
	e.changed = make(chan struct{})
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

// remove joins the remaining slices of the Service, since one pod may be in two of them.
func (e *Endpoints) remove(slice types.NamespacedName) {
	content, found := e.slices[slice]
	if !found {
		return
	}
	delete(e.slices, slice)
	rest := slices.DeleteFunc(e.services[content.service], func(name string) bool { return name == slice.Name })
	if e.services[content.service] = rest; len(rest) == 0 {
		delete(e.services, content.service)
	}
	e.join(content.service, content)
}

// join computes the ports of a changed EndpointSlice from all EndpointSlices of its Service.
func (e *Endpoints) join(service types.NamespacedName, changed sliceContent) {
	for port := range changed.ports {
		var joined []Address
		for _, name := range e.services[service] {
			joined = append(joined, e.slices[types.NamespacedName{Namespace: service.Namespace, Name: name}].ports[port]...)
		}
		if len(joined) == 0 {
			delete(e.ports, portKey{service, port})
			continue
		}
		e.ports[portKey{service, port}] = joined
	}
}

// Addresses returns the ready addresses of a Service's port, in random order. The port is named as in the Service; "" is its only one.
func (e *Endpoints) Addresses(service types.NamespacedName, port string) []Address {
	e.mu.RLock()
	found := e.ports[portKey{service, port}]
	e.mu.RUnlock()
	if len(found) < 2 {
		return found
	}
	shuffled := append([]Address(nil), found...)
	rand.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	return shuffled
}
