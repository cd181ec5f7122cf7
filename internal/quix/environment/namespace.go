package environment

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
)

func namespace(in Inputs) *corev1.Namespace {
	env := in.Environment
	labels := identity(env, quixv1.ManagedBy)
	labels[quixv1.LabelPlatform] = quixv1.Platform
	if level := string(in.Config.PodSecurity); level != "" {
		for _, mode := range []string{"enforce", "warn", "audit"} {
			labels["pod-security.kubernetes.io/"+mode] = level
		}
	}
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name:   namespaceName(env),
		Labels: guarded(env.Spec.Labels, labels),
		Annotations: guarded(env.Spec.Annotations, map[string]string{
			quixv1.AnnotationCreatedBy:    quixv1.ManagedBy,
			quixv1.AnnotationResourceName: env.Name,
		}),
		// An Environment is cluster-scoped, so it can own a namespace. If a client removes the finalizer, the garbage
		// collector deletes the namespace.
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion:         quixv1.GroupVersion.String(),
			Kind:               "Environment",
			Name:               env.Name,
			UID:                env.UID,
			Controller:         ptr.To(true),
			BlockOwnerDeletion: ptr.To(true),
		}},
	}}
}
