package manifests

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/bergctf/berg-operator/internal/tunnel/pairobjects"
)

// service is a name at which clients find the client proxy: the name of the pair, or an alias. It is headless, so
// that every port is reachable; the ports that it lists are for service discovery only.
func service(in Inputs, name string) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: in.meta(in.Namespace, name, ""),
		Spec: corev1.ServiceSpec{
			Type:      corev1.ServiceTypeClusterIP,
			ClusterIP: corev1.ClusterIPNone,
			Selector:  in.selector(),
		},
	}
	for _, number := range in.Ports {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{
			Name: fmt.Sprintf("tunnel-%d", number), Protocol: corev1.ProtocolTCP, Port: number, TargetPort: intstr.FromInt32(number),
		})
	}
	return s
}

// publisher gives the client proxy ports of the nodes.
func publisher(in Inputs) *corev1.Service {
	cfg := in.Config
	return &corev1.Service{
		ObjectMeta: in.meta(in.Namespace, in.object(pairobjects.PartClient), ""),
		Spec: corev1.ServiceSpec{
			Type:     corev1.ServiceTypeNodePort,
			Selector: in.selector(),
			Ports: []corev1.ServicePort{
				{Name: "control", Protocol: corev1.ProtocolTCP, Port: cfg.ControlPort, TargetPort: intstr.FromInt32(cfg.ControlPort)},
				{Name: "data", Protocol: corev1.ProtocolTCP, Port: cfg.DataPort, TargetPort: intstr.FromInt32(cfg.DataPort)},
			},
		},
	}
}

// ReadNodePorts returns the ports of the nodes that a publisher has.
func ReadNodePorts(s *corev1.Service) (ports HostPorts) {
	for _, port := range s.Spec.Ports {
		switch port.Name {
		case "control":
			ports.Control = port.NodePort
		case "data":
			ports.Data = port.NodePort
		}
	}
	return ports
}
