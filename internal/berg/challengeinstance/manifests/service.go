package manifests

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/rules"
)

const (
	nodePortSuffix = rules.NodePortSuffix
	headlessSuffix = rules.HeadlessSuffix
)

// services returns the Services of one container: the internal one with all ports, the node port one with the public ports,
// and the headless one if it is configured. Only a headless Service may lack ports, so the internal one of a container
// without ports is headless: its name resolves to the pod, at which the other containers reach every port.
func services(in Inputs, c bergv1.Container) []*corev1.Service {
	var all, public []corev1.ServicePort
	for _, p := range c.Ports {
		sp := corev1.ServicePort{
			Name:       servicePortName(c, p),
			Port:       p.Port,
			Protocol:   p.Transport(),
			TargetPort: intstr.FromInt32(p.Port),
		}
		if protocol := routedProtocol(p); protocol != "" {
			sp.AppProtocol = &protocol
		}
		all = append(all, sp)
		if p.OnNodePort() {
			sp.NodePort = recordedNodePort(in, c, p)
			public = append(public, sp)
		}
	}

	var out []*corev1.Service
	// The operator may find out earlier than the node that the program of a container accepts connections. Then the
	// instance is Running, so its Services must lead to a pod that the node does not report as ready yet.
	early := StartupPort(c) != 0
	add := func(name string, spec corev1.ServiceSpec) {
		spec.PublishNotReadyAddresses = early
		spec.Selector = in.podLabels(c.Hostname)
		out = append(out, &corev1.Service{ObjectMeta: in.meta(name, "challenge-service"), Spec: spec})
	}
	internal := corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, Ports: all}
	if len(all) == 0 {
		internal.ClusterIP = corev1.ClusterIPNone
	}
	add(c.Hostname, internal)
	if len(public) > 0 {
		// Players may come by both protocols. Other containers reach a hostname by one: most programs listen at IPv4 addresses alone.
		add(c.Hostname+nodePortSuffix, corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: public, IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicyPreferDualStack)})
	}
	if in.Config.HeadlessService {
		add(c.Hostname+headlessSuffix, corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: corev1.ClusterIPNone, Ports: all})
	}
	return out
}

// routedProtocol returns the appProtocol of a Service's port by which a Gateway speaks another protocol than HTTP/1.1 to the pod. Other texts
// of authors are for clients only: a Gateway might interpret them in its own way, for example https.
func routedProtocol(p bergv1.Port) string {
	if t := p.EffectiveType(); t != bergv1.PublicHTTPRoute && t != bergv1.PublicTLSRoute {
		return ""
	}
	switch name := strings.ToLower(p.AppProtocol); name {
	case "grpc", "h2c", "kubernetes.io/h2c":
		return "kubernetes.io/h2c"
	case proxyProtocol:
		return name
	}
	return ""
}

// proxyProtocol is what berg-gate calls a port whose pods want the PROXY protocol.
const proxyProtocol = "berg.norelect.ch/proxy-protocol"

// PublicServiceName is the name of the Service by which players reach a public port.
func PublicServiceName(c bergv1.Container, p bergv1.Port) string {
	if p.OnNodePort() {
		return c.Hostname + nodePortSuffix
	}
	return c.Hostname
}

// recordedNodePort returns the node port in the status, 0 if none. A Service that is created again requests it, so that the
// address which players know stays valid.
func recordedNodePort(in Inputs, c bergv1.Container, p bergv1.Port) int32 {
	for _, e := range in.Recorded {
		if matchesPort(e, c, p) {
			return e.Port
		}
	}
	return 0
}

// servicePortName is port-<number>. Names must be unique in a Service, so a UDP port gets a
// suffix if the container uses the same number for TCP.
func servicePortName(c bergv1.Container, p bergv1.Port) string {
	name := fmt.Sprintf("port-%d", p.Port)
	if p.Transport() != corev1.ProtocolUDP {
		return name
	}
	for _, other := range c.Ports {
		if other.Port == p.Port && other.Transport() == corev1.ProtocolTCP {
			return name + "-udp"
		}
	}
	return name
}
