package environment

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
)

func namespace(in Inputs) *corev1.Namespace {
	labels := identity(in.ID, in.Name, quixv1.ManagedBy)
	labels[quixv1.LabelPlatform] = quixv1.Platform
	if level := string(in.Config.PodSecurity); level != "" {
		for _, mode := range []string{"enforce", "warn", "audit"} {
			labels["pod-security.kubernetes.io/"+mode] = level
		}
	}
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name:   in.Namespace,
		Labels: guarded(in.Labels, labels),
		Annotations: guarded(in.Annotations, map[string]string{
			quixv1.AnnotationCreatedBy:    quixv1.ManagedBy,
			quixv1.AnnotationResourceName: in.Name,
		}),
		// An Environment is cluster-scoped, so it can own a namespace. If a client removes the finalizer, the garbage
		// collector deletes the namespace.
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion:         quixv1.GroupVersion.String(),
			Kind:               "Environment",
			Name:               in.Name,
			UID:                in.UID,
			Controller:         ptr.To(true),
			BlockOwnerDeletion: ptr.To(true),
		}},
	}}
}
