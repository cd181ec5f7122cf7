package manifests

import (
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// disruptionBudget protects the players of a container that serves. A pod that is not ready serves no player: it may be
// evicted, so that it blocks no drain of its node. Neither does a prepared instance, which never expires.
func disruptionBudget(in Inputs, c bergv1.Container) *policyv1.PodDisruptionBudget {
	var minAvailable int32 = 1
	if in.Unclaimed {
		minAvailable = 0
	}
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: in.meta(c.Hostname+"-pdb", "challenge-disruption-budget"),
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: ptr.To(intstr.FromInt32(minAvailable)),
			Selector:     &metav1.LabelSelector{MatchLabels: in.podLabels(c.Hostname)},

			UnhealthyPodEvictionPolicy: ptr.To(policyv1.AlwaysAllow),
		},
	}
}
