package challenge

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
)

// deployment selects its pods by labels that never change: a selector is immutable.
func deployment(in Inputs, component hexactfv1.Component) *appsv1.Deployment {
	labels := in.labels(component.Name)
	return &appsv1.Deployment{
		ObjectMeta: in.meta(in.prefix(component.Name)+deploymentSuffix, labels),
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(replicas(component)),
			Selector: &metav1.LabelSelector{MatchLabels: in.selector(component.Name)},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       podSpec(in, component),
			},
		},
	}
}

// replicas is how many pods of a component run, by default one.
func replicas(component hexactfv1.Component) int32 {
	return ptr.Deref(component.Deployment.Spec.Replicas, 1)
}

// podSpec takes from the definition only the containers and the node selector, so that other fields of it have no effect.
func podSpec(in Inputs, component hexactfv1.Component) corev1.PodSpec {
	from := component.Deployment.Spec.Template.Spec
	spec := corev1.PodSpec{NodeSelector: from.NodeSelector, Containers: from.Containers}
	if in.Snapshot.Isolated {
		spec.TerminationGracePeriodSeconds = ptr.To[int64](isolatedGraceSeconds)
		// Players get into these pods. The variables of Services would show them the addresses of all other Services of
		// the namespace.
		spec.AutomountServiceAccountToken = ptr.To(false)
		spec.EnableServiceLinks = ptr.To(false)
		spec.SecurityContext = &corev1.PodSecurityContext{
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		}
	}
	return spec
}
