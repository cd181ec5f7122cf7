package manifests

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/rules"
)

// Endpoint is the address of one port of the instance.
type Endpoint struct {
	// Variable is the environment variable that holds the address, empty for a
	// port without a name.
	Variable string
	// Address is <host>:<port>, the value of the variable.
	Address string
	// Service is the endpoint in status.services for players; nil for an internal port.
	Service *bergv1.ServiceEndpoint
}

// PortEndpoints returns the endpoint of every port, in the order of the Challenge. live are the Services
// as the API server has them. It fails while a node port is not allocated. Without ports the
// result is empty and not nil. Other functions rely on the order: the n-th endpoint belongs to the n-th port of all containers.
func PortEndpoints(in Inputs, live []*corev1.Service) ([]Endpoint, error) {
	out := []Endpoint{}
	for _, c := range in.Challenge.Containers {
		for _, p := range c.Ports {
			e := Endpoint{Variable: rules.EndpointVariable(p.Name)}
			host, number, tls := c.Hostname, p.Port, false
			switch p.EffectiveType() {
			case bergv1.InternalPort:
			case bergv1.PublicPort:
				host, number = in.Config.Domain, nodePort(live, c, p)
				if number == 0 {
					return nil, fmt.Errorf("service %s: no node port for port %d yet", c.Hostname+nodePortSuffix, p.Port)
				}
			case bergv1.PublicHTTPRoute:
				host, number, tls = string(routeHost(in, c, p)), in.Config.HTTPPort, in.Config.UsesHTTPS()
			case bergv1.PublicTLSRoute:
				host, number, tls = string(routeHost(in, c, p)), in.Config.TLSPort, true
			}
			e.Address = net.JoinHostPort(host, strconv.Itoa(int(number)))
			if p.Public() {
				e.Service = &bergv1.ServiceEndpoint{
					Name:        rules.EndpointName(c, p),
					Hostname:    host,
					Port:        number,
					Protocol:    string(p.Transport()),
					AppProtocol: p.AppProtocol,
					TLS:         tls,
				}
				e.Service.URL = address(*e.Service, p.EffectiveType())
				if p.Transport() == corev1.ProtocolTCP && !p.ConnectsAtStart() {
					e.Service.ConnectAtStart = ptr.To(false)
				}
			}
			out = append(out, e)
		}
	}
	return out, nil
}

// NodePort is a node port that leads to a container.
type NodePort struct {
	Container string
	Number    uint16
}

// NodePorts returns the node ports to which the operator connects. endpoints are the endpoints of the containers, as
// PortEndpoints returns them.
func NodePorts(containers []bergv1.Container, endpoints []Endpoint) []NodePort {
	var out []NodePort
	n := 0
	for _, c := range containers {
		for _, p := range c.Ports {
			if n < len(endpoints) && p.OnNodePort() && p.ConnectsAtStart() && endpoints[n].Service != nil {
				out = append(out, NodePort{Container: c.Hostname, Number: uint16(endpoints[n].Service.Port)})
			}
			n++
		}
	}
	return out
}

// address is the URL for players: http or https if the port speaks HTTP, else the transport as
// the scheme.
func address(e bergv1.ServiceEndpoint, t bergv1.PortType) string {
	web := strings.EqualFold(e.AppProtocol, "http") || strings.EqualFold(e.AppProtocol, "https")
	scheme := strings.ToLower(e.Protocol)
	switch {
	case e.Protocol == string(corev1.ProtocolUDP):
	case t == bergv1.PublicHTTPRoute || web:
		scheme = "http"
		if e.TLS || t == bergv1.PublicPort && strings.EqualFold(e.AppProtocol, "https") {
			scheme = "https"
		}
	case e.TLS:
		scheme = "tls"
	}
	host := net.JoinHostPort(e.Hostname, strconv.Itoa(int(e.Port)))
	if own := map[string]string{"http": ":80", "https": ":443"}[scheme]; own != "" {
		host = strings.TrimSuffix(host, own)
	}
	return (&url.URL{Scheme: scheme, Host: host}).String()
}

// routed reports whether a recorded endpoint belongs to a route, <uuid>.<domain>, and not to a node port, the domain
// itself.
func routed(recorded bergv1.ServiceEndpoint) bool {
	id, _, _ := strings.Cut(recorded.Hostname, ".")
	return recorded.TLS || len(id) == routeIDLength && uuid.Validate(id) == nil
}

// routeIDLength is the length of a UUID as routeID writes it; uuid.Validate accepts other forms.
const routeIDLength = 36

// matchesPort reports whether a recorded endpoint belongs to a port. Before a rollout the port of this name may have had
// another kind of address.
func matchesPort(recorded bergv1.ServiceEndpoint, c bergv1.Container, p bergv1.Port) bool {
	return p.Public() &&
		recorded.Name == rules.EndpointName(c, p) && recorded.Protocol == string(p.Transport()) &&
		routed(recorded) == p.Routed()
}

// KeepWanted returns the recorded endpoints of ports that these containers still have. When a rollout gives up a node port,
// another Service may get it, and its address must not stay in the status.
func KeepWanted(recorded []bergv1.ServiceEndpoint, containers []bergv1.Container) []bergv1.ServiceEndpoint {
	var out []bergv1.ServiceEndpoint
	for _, e := range recorded {
		if slices.ContainsFunc(containers, func(c bergv1.Container) bool {
			return slices.ContainsFunc(c.Ports, func(p bergv1.Port) bool { return matchesPort(e, c, p) })
		}) {
			out = append(out, e)
		}
	}
	return out
}

// WithoutNewRoutes returns the endpoints while a route is missing or differs from the plan: routed ports have their
// recorded endpoints, or none. An address that no route serves yet is not published.
func WithoutNewRoutes(endpoints []Endpoint, recorded []bergv1.ServiceEndpoint) []Endpoint {
	out := slices.Clone(endpoints)
	for i, e := range out {
		if e.Service == nil || !routed(*e.Service) {
			continue
		}
		out[i].Service = nil
		for _, t := range recorded {
			if routed(t) && t.Name == e.Service.Name && t.Protocol == e.Service.Protocol {
				out[i].Service = &t
			}
		}
	}
	return out
}

// MovedNodePorts returns a message for every port whose node port differs from the recorded one.
func MovedNodePorts(recorded, now []bergv1.ServiceEndpoint) []string {
	var out []string
	for _, before := range recorded {
		for _, after := range now {
			if before.Name == after.Name && before.Protocol == after.Protocol && !routed(before) && !routed(after) && before.Port != after.Port {
				out = append(out, fmt.Sprintf("Port %s is now reached at %s:%d: node port %d was not available any more",
					after.Name, after.Hostname, after.Port, before.Port))
			}
		}
	}
	return out
}

func nodePort(live []*corev1.Service, c bergv1.Container, p bergv1.Port) int32 {
	for _, s := range live {
		if s.Name != c.Hostname+nodePortSuffix {
			continue
		}
		for _, sp := range s.Spec.Ports {
			if sp.Port == p.Port && sp.Protocol == p.Transport() {
				return sp.NodePort
			}
		}
	}
	return 0
}

// PublicServices returns the endpoints in status.services.
func PublicServices(endpoints []Endpoint) []bergv1.ServiceEndpoint {
	var out []bergv1.ServiceEndpoint
	for _, e := range endpoints {
		if e.Service != nil {
			out = append(out, *e.Service)
		}
	}
	return out
}
