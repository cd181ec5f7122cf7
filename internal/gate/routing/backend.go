package routing

import (
	"fmt"
	"math/rand/v2"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/bergctf/berg-operator/internal/gate/usage"
)

// Protocol of a backend, from the appProtocol of its Service's port.
type Protocol string

// The protocols of backends.
const (
	HTTP1 Protocol = ""
	H2C   Protocol = "h2c"
	// Proxied connections begin with a header of the PROXY protocol, version 2.
	Proxied Protocol = "proxied"
)

// Backend is one port of a Service.
type Backend struct {
	Service  types.NamespacedName
	Port     string // name of the port, as EndpointSlices have it; "" for the only port
	Protocol Protocol
	Weight   int32
	// Invalid: the reference leads nowhere. Its share of the requests is answered with 500.
	Invalid bool
	// Set, Add and Remove change the headers of requests to this backend.
	Headers HeaderChange
	// Use records what players do with the route.
	Use *usage.Use
}

// ServicePort is a port of a Service.
type ServicePort struct {
	Name     string
	Number   int32
	Protocol Protocol
}

// Services returns the ports of a Service, and false if there is no such Service that has endpoints.
type Services func(types.NamespacedName) ([]ServicePort, bool)

// Grants reports whether ReferenceGrants allow a kind of a namespace to refer to an object of another.
type Grants func(fromKind, fromNamespace, toKind string, to types.NamespacedName) bool

// problem is the reason why a reference is not resolved, with a sentence.
type problem struct {
	reason  gatewayv1.RouteConditionReason
	message string
}

// resolve translates a reference of a route to a Service.
func resolve(ref gatewayv1.BackendRef, kind, namespace string, services Services, granted Grants) (Backend, *problem) {
	backend := Backend{Weight: ptr.Deref(ref.Weight, 1), Invalid: true}
	if ptr.Deref(ref.Group, "") != "" || ptr.Deref(ref.Kind, "Service") != "Service" {
		return backend, &problem{gatewayv1.RouteReasonInvalidKind, fmt.Sprintf("backendRef %s: the kind %s is not supported: use a Service", ref.Name, ptr.Deref(ref.Kind, ""))}
	}
	backend.Service = types.NamespacedName{Namespace: string(ptr.Deref(ref.Namespace, gatewayv1.Namespace(namespace))), Name: string(ref.Name)}
	if backend.Service.Namespace != namespace && !granted(kind, namespace, "Service", backend.Service) {
		return backend, &problem{gatewayv1.RouteReasonRefNotPermitted, fmt.Sprintf("backendRef %s: no ReferenceGrant in namespace %s allows it", ref.Name, backend.Service.Namespace)}
	}
	if ref.Port == nil {
		return backend, &problem{gatewayv1.RouteReasonUnsupportedProtocol, fmt.Sprintf("backendRef %s: port is missing", ref.Name)}
	}
	ports, found := services(backend.Service)
	if !found {
		return backend, &problem{gatewayv1.RouteReasonBackendNotFound, fmt.Sprintf("backendRef %s: there is no such Service in namespace %s", ref.Name, backend.Service.Namespace)}
	}
	for _, port := range ports {
		if port.Number == *ref.Port {
			backend.Port, backend.Protocol, backend.Invalid = port.Name, port.Protocol, false
			return backend, nil
		}
	}
	return backend, &problem{gatewayv1.RouteReasonBackendNotFound, fmt.Sprintf("backendRef %s: the Service has no port %d", ref.Name, *ref.Port)}
}

// Pick chooses a backend by weight. It returns nil if no backend has a weight.
func Pick(backends []Backend) *Backend {
	if len(backends) == 1 && backends[0].Weight > 0 {
		return &backends[0]
	}
	var total int64
	for _, backend := range backends {
		total += int64(backend.Weight)
	}
	if total == 0 {
		return nil
	}
	chosen := rand.Int64N(total) //nolint:gosec // a share of requests is no secret
	for i := range backends {
		if chosen -= int64(backends[i].Weight); chosen < 0 {
			return &backends[i]
		}
	}
	return nil
}
