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

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// Endpoint is where one port of the instance is reached.
type Endpoint struct {
	// Variable is the environment variable that holds the address, empty for a
	// port without a name.
	Variable string
	// Address is <host>:<port>, as the containers are told.
	Address string
	// Service is what players are told; nil for an internal port.
	Service *bergv1.ServiceEndpoint
}

// EndpointsOf returns the endpoint of every port, in the order of the Challenge.
// live are the Services as the API server has them. It fails while a node port
// is not allotted. Without ports there are none, which is not nil.
func EndpointsOf(in Inputs, live []*corev1.Service) ([]Endpoint, error) {
	out := []Endpoint{}
	for _, c := range in.Challenge.Containers {
		for _, p := range c.Ports {
			e := Endpoint{Variable: endpointVariable(p.Name)}
			host, number, tls := c.Hostname, p.Port, false
			switch p.EffectiveType() {
			case bergv1.InternalPort:
			case bergv1.PublicPort:
				host, number = in.Config.Domain, nodePort(live, c, p)
				if number == 0 {
					return nil, fmt.Errorf("service %s: no node port for port %d yet", c.Hostname+nodePortSuffix, p.Port)
				}
			case bergv1.PublicHTTPRoute:
				host, number, tls = string(routeHost(in, c, p)), in.Config.HTTPPort, in.Config.HTTPTLS
			case bergv1.PublicTLSRoute:
				host, number, tls = string(routeHost(in, c, p)), in.Config.TLSPort, true
			}
			e.Address = net.JoinHostPort(host, strconv.Itoa(int(number)))
			if p.Public() {
				e.Service = &bergv1.ServiceEndpoint{
					Name:        endpointName(c, p),
					Hostname:    host,
					Port:        number,
					Protocol:    string(p.Transport()),
					AppProtocol: p.AppProtocol,
					TLS:         tls,
				}
				e.Service.URL = address(*e.Service, p.EffectiveType())
			}
			out = append(out, e)
		}
	}
	return out, nil
}

// address is what a player gives to a program: a browser's schemes where HTTP is
// spoken, else the transport.
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

// routed reports whether what was told is the address of a route, <uuid>.<domain>,
// and not that of a node port, the domain itself.
func routed(told bergv1.ServiceEndpoint) bool {
	id, _, _ := strings.Cut(told.Hostname, ".")
	return told.TLS || len(id) == routeIDLength && uuid.Validate(id) == nil
}

// routeIDLength is that of a UUID as routeID writes it; uuid knows other forms.
const routeIDLength = 36

// tells reports whether what was told is the address of a port. Under the port's
// name another kind of address may have stood before a rollout.
func tells(told bergv1.ServiceEndpoint, c bergv1.Container, p bergv1.Port) bool {
	return p.Public() &&
		told.Name == endpointName(c, p) && told.Protocol == string(p.Transport()) &&
		routed(told) == p.Routed()
}

// StillWanted returns what was told of ports that these containers still have. As
// soon as a rollout is adopted, a node port that it gives up may be anybody's.
func StillWanted(told []bergv1.ServiceEndpoint, containers []bergv1.Container) []bergv1.ServiceEndpoint {
	var out []bergv1.ServiceEndpoint
	for _, e := range told {
		if slices.ContainsFunc(containers, func(c bergv1.Container) bool {
			return slices.ContainsFunc(c.Ports, func(p bergv1.Port) bool { return tells(e, c, p) })
		}) {
			out = append(out, e)
		}
	}
	return out
}

// WithoutNewRoutes returns the endpoints while a route is missing or not what it
// is to be: routed ports are reached where players were told before, or not at all.
func WithoutNewRoutes(endpoints []Endpoint, told []bergv1.ServiceEndpoint) []Endpoint {
	out := slices.Clone(endpoints)
	for i, e := range out {
		if e.Service == nil || !routed(*e.Service) {
			continue
		}
		out[i].Service = nil
		for _, t := range told {
			if routed(t) && t.Name == e.Service.Name && t.Protocol == e.Service.Protocol {
				out[i].Service = &t
			}
		}
	}
	return out
}

// MovedNodePorts tells of each public port that is reached at another node port than
// players were told.
func MovedNodePorts(told, now []bergv1.ServiceEndpoint) []string {
	var out []string
	for _, before := range told {
		for _, after := range now {
			if before.Name == after.Name && before.Protocol == after.Protocol && !routed(before) && !routed(after) && before.Port != after.Port {
				out = append(out, fmt.Sprintf("Port %s is reached at %s:%d now: node port %d could not be had again",
					after.Name, after.Hostname, after.Port, before.Port))
			}
		}
	}
	return out
}

func endpointName(c bergv1.Container, p bergv1.Port) string {
	if p.Name != "" {
		return p.Name
	}
	return fmt.Sprintf("%s:%d", c.Hostname, p.Port)
}

// endpointVariable is the port's name in upper case, every character other than
// A-Z and 0-9 as "_", and "_ENDPOINT".
func endpointVariable(portName string) string {
	if portName == "" {
		return ""
	}
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToUpper(portName)) + "_ENDPOINT"
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

func PublicServices(endpoints []Endpoint) []bergv1.ServiceEndpoint {
	var out []bergv1.ServiceEndpoint
	for _, e := range endpoints {
		if e.Service != nil {
			out = append(out, *e.Service)
		}
	}
	return out
}
