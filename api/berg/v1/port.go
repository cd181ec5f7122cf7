package v1

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// portTypes says how the ports of each type are reached from outside their instance. The
// linter exhaustive names a type that is missing here, and every switch that lacks it.
var portTypes = map[PortType]struct {
	nodePort bool // on a port of every node
	routed   bool // by host name, through a listener of the Gateway
}{
	InternalPort:    {},
	PublicPort:      {nodePort: true},
	PublicHTTPRoute: {routed: true},
	PublicTLSRoute:  {routed: true},
}

// PortTypes returns all types of a port. They are sorted by their text.
func PortTypes() []PortType { return slices.Sorted(maps.Keys(portTypes)) }

// EffectiveType is the type of a port, InternalPort where none is written.
func (p Port) EffectiveType() PortType { return cmp.Or(p.Type, InternalPort) }

// OnNodePort reports whether a port is reached on a port of every node.
func (p Port) OnNodePort() bool { return portTypes[p.EffectiveType()].nodePort }

// Routed reports whether a port is reached by host name through a listener of the Gateway.
func (p Port) Routed() bool { return portTypes[p.EffectiveType()].routed }

// Public reports whether a port is reached from outside its instance.
func (p Port) Public() bool { return p.OnNodePort() || p.Routed() }

// ConnectsAtStart reports whether the port must accept a connection before the instance is Running.
func (p Port) ConnectsAtStart() bool {
	return p.Public() && p.Transport() == corev1.ProtocolTCP && (p.ConnectAtStart == nil || *p.ConnectAtStart)
}

// Transport is the transport protocol of a port, TCP where none is written.
func (p Port) Transport() corev1.Protocol { return p.Protocol.Transport() }

// Transport is the protocol as Kubernetes writes it, TCP where none is written. Case does not matter. The schema refuses other
// protocols.
func (p Protocol) Transport() corev1.Protocol {
	if strings.EqualFold(string(p), string(corev1.ProtocolUDP)) {
		return corev1.ProtocolUDP
	}
	return corev1.ProtocolTCP
}
