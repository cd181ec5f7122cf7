package challengeinstance

import (
	"fmt"
	"net"
	"strconv"
	"strings"

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

// endpoints returns the endpoint of every port, in the order of the Challenge.
// live are the Services as the API server has them. It fails while a node port
// is not allotted.
func endpoints(in Inputs, live []*corev1.Service) ([]Endpoint, error) {
	var out []Endpoint
	for _, c := range in.Challenge.Containers {
		for _, p := range c.Ports {
			e := Endpoint{Variable: endpointVariable(p.Name)}
			host, number := c.Hostname, p.Port
			switch portType(p) {
			case bergv1.PublicPort:
				host, number = in.Config.Domain, nodePort(live, c, p)
				if number == 0 {
					return nil, fmt.Errorf("service %s: no node port for port %d yet", c.Hostname+nodePortSuffix, p.Port)
				}
			case bergv1.PublicHTTPRoute:
				host, number = string(routeHost(in, c, p)), in.Config.HTTPPort
			case bergv1.PublicTLSRoute:
				host, number = string(routeHost(in, c, p)), in.Config.TLSPort
			}
			e.Address = net.JoinHostPort(host, strconv.Itoa(int(number)))
			if portType(p) != bergv1.InternalPort {
				e.Service = &bergv1.ServiceEndpoint{
					Name:        endpointName(c, p),
					Hostname:    host,
					Port:        number,
					Protocol:    string(protocol(p)),
					AppProtocol: p.AppProtocol,
					TLS:         portType(p) != bergv1.PublicPort,
				}
			}
			out = append(out, e)
		}
	}
	return out, nil
}

// moved tells of each public port that is reached at another node port than
// players were told.
func moved(told, now []bergv1.ServiceEndpoint) []string {
	var out []string
	for _, before := range told {
		for _, after := range now {
			if before.Name == after.Name && before.Protocol == after.Protocol && !before.TLS && !after.TLS && before.Port != after.Port {
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
			if sp.Port == p.Port && sp.Protocol == protocol(p) {
				return sp.NodePort
			}
		}
	}
	return 0
}
