package examples

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
)

var _ = add(family{addToScheme: tunnelv1.AddToScheme, tried: networks})

// networks tries container networks. Tunnels need a registry, and rights that an administrator
// gives: they are not tried.
func networks(all []unstructured.Unstructured, at place) (tried []resource, _ error) {
	for _, e := range all {
		if e.GetKind() == "ContainerNetwork" && e.GroupVersionKind().Group == tunnelv1.GroupVersion.Group {
			n, err := read[tunnelv1.ContainerNetwork](e)
			if err != nil {
				return nil, err
			}
			tried = append(tried, network(n, at.prefix))
		}
	}
	return tried, nil
}

// network gives the example a unique name and a unique namespace.
func network(n *tunnelv1.ContainerNetwork, prefix string) resource {
	example := n.Name
	n.ObjectMeta = metav1.ObjectMeta{Name: prefix + n.Name}
	n.Spec.NetworkName = prefix + n.Spec.NetworkName
	return resource{
		Object: n, example: example,
		runs: string(tunnelv1.NetworkRunning), fails: string(tunnelv1.NetworkFailedToStart),
		phase:      func() string { return string(n.Status.State) },
		conditions: func() []metav1.Condition { return n.Status.Conditions },
		namespace:  func() string { return n.Status.NetworkName },
	}
}
