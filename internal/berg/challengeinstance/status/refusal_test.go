package status

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

func TestSameRefusal(t *testing.T) {
	deployment := func(all ...appsv1.DeploymentCondition) *appsv1.Deployment {
		return &appsv1.Deployment{Status: appsv1.DeploymentStatus{Conditions: all}}
	}
	refused := func(message string) *appsv1.Deployment {
		return deployment(appsv1.DeploymentCondition{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Message: message})
	}
	available := deployment(appsv1.DeploymentCondition{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue, Message: "quota"})
	for name, tc := range map[string]struct {
		before, after *appsv1.Deployment
		want          bool
	}{
		"neither time":                {deployment(), available, true},
		"the same":                    {refused("quota"), refused("quota"), true},
		"another one":                 {refused("quota"), refused("policy"), false},
		"a first one":                 {available, refused("quota"), false},
		"over":                        {refused("quota"), deployment(), false},
		"a first one without a cause": {deployment(), refused(""), false},
	} {
		if got := SameRefusal(tc.before, tc.after); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
