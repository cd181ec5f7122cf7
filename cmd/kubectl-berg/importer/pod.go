package importer

import (
	"strconv"

	yamlv3 "go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/yamlnode"
)

// Fields of pods and containers that are carried over, or that mean the same everywhere.
var (
	podFields          = []string{"containers", "automountServiceAccountToken", "enableServiceLinks", "runtimeClassName"}
	podContainerFields = []string{
		"name", "image", "imagePullPolicy", "command", "args", "env", "ports", "readinessProbe", "livenessProbe", "resources", "securityContext", "volumeMounts",
	}
	podSecurityFields = []string{"privileged", "capabilities"}
)

// podContainer converts a container of a pod.
func (d *draft) podContainer(s *service, c corev1.Container, node *yamlv3.Node) bergv1.Container {
	out := bergv1.Container{Command: c.Command, Args: c.Args}
	position := &service{name: s.name, node: node}
	out.ReadinessProbe = d.podProbe(position, c, "readinessProbe", c.ReadinessProbe)
	out.LivenessProbe = d.podProbe(position, c, "livenessProbe", c.LivenessProbe)
	d.otherFields(s, node, podContainerFields)
	d.otherFields(s, yamlnode.Child(node, "securityContext"), podSecurityFields)
	for _, e := range c.Env {
		if e.ValueFrom != nil {
			d.lost(position, "env", e.Name, "has its value from another object: write the value")
			continue
		}
		if out.Environment == nil {
			out.Environment = map[string]bergv1.EnvironmentValue{}
		}
		out.Environment[e.Name] = bergv1.StringValue(e.Value)
	}
	out.ResourceRequests, out.ResourceLimits = convertResources(c.Resources.Requests), convertResources(c.Resources.Limits)
	if len(c.VolumeMounts) > 0 {
		d.lost(position, "volumeMounts", c.VolumeMounts[0].MountPath, reasons["volumes"])
	}
	d.security(s, position, &out, c.SecurityContext)
	return out
}

// security carries over the rights that a container of a pod asks for.
func (d *draft) security(s, position *service, c *bergv1.Container, security *corev1.SecurityContext) {
	if security == nil {
		return
	}
	s.jail = s.jail || ptr.Deref(security.Privileged, false)
	if security.Capabilities == nil {
		return
	}
	for _, name := range security.Capabilities.Add {
		if isSysAdmin(string(name)) {
			s.jail = true
		} else {
			d.capability(position, c, string(name))
		}
	}
}

// convertResources are the amounts that a Challenge knows, nil if there are none.
func convertResources(list corev1.ResourceList) *bergv1.Resources {
	var r bergv1.Resources
	if q, ok := list[corev1.ResourceCPU]; ok {
		a := bergv1.Amount(q.String())
		r.CPU = &a
	}
	if q, ok := list[corev1.ResourceMemory]; ok {
		a := bergv1.Amount(q.String())
		r.Memory = &a
	}
	if r.CPU == nil && r.Memory == nil {
		return nil
	}
	return &r
}

// podProbe returns a probe with port numbers instead of port names, nil if it cannot be carried over.
func (d *draft) podProbe(s *service, c corev1.Container, key string, p *corev1.Probe) *corev1.Probe {
	if p == nil {
		return nil
	}
	number := func(port *intstr.IntOrString) {
		for _, named := range c.Ports {
			if port.Type == intstr.String && named.Name == port.StrVal {
				*port = intstr.FromInt32(named.ContainerPort)
			}
		}
		if n, err := strconv.ParseInt(port.StrVal, 10, 32); port.Type == intstr.String && err == nil {
			*port = intstr.FromInt32(int32(n))
		}
	}
	p = p.DeepCopy()
	if p.HTTPGet != nil {
		number(&p.HTTPGet.Port)
	}
	if p.TCPSocket != nil {
		number(&p.TCPSocket.Port)
	}
	return d.validProbe(s, key, p)
}
