package network

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
)

// namespace returns the namespace of a network that creates its own. A persistent one has no owner, because the garbage
// collector would delete it with the network.
func namespace(in Inputs) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: NamespaceName(in.Spec, in.Name, in.UID)}}
	if in.Spec.EffectiveMode() == tunnelv1.ModePersistent {
		ns.Annotations = map[string]string{tunnelv1.AnnotationPersistent: "true"}
	} else {
		ns.OwnerReferences = ownerReferences(in)
	}
	return ns
}
