package prepull

import (
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/nodes"
	"github.com/bergctf/berg-operator/internal/berg/view"
)

// placement holds the fields of an instance's pod by which the scheduler chooses a node, apart from resources.
type placement struct {
	nodeSelector map[string]string
	tolerations  []corev1.Toleration
}

// newPlacement returns where the pod of a container may run. class is its RuntimeClass, nil for none.
func newPlacement(c bergv1.Container, class *nodev1.RuntimeClass) placement {
	p := placement{nodeSelector: map[string]string{}}
	if class != nil && class.Scheduling != nil {
		for key, value := range class.Scheduling.NodeSelector {
			p.nodeSelector[key] = value
		}
		p.tolerations = class.Scheduling.Tolerations
	}
	if c.DynamicFlag != nil && c.DynamicFlag.Executable != nil {
		p.nodeSelector[corev1.LabelArchStable] = "amd64"
	}
	return p
}

// support returns the abilities of the nodes.
func (o *Observed) support() nodes.Support {
	list := make([]corev1.Node, 0, len(o.Nodes))
	for _, n := range o.Nodes {
		list = append(list, *n)
	}
	return nodes.ComputeSupport(list)
}

// takes reports whether a node lets pods of a placement run now.
func takes(n *corev1.Node, p placement) bool {
	for key, value := range p.nodeSelector {
		if n.Labels[key] != value {
			return false
		}
	}
	return view.TakesInstances(n, p.tolerations...)
}
