package project

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kit/apply"
)

// plan returns the steps within the Project's namespace, which exists by then. The operator's
// own right comes first: the others are written by it, and await makes them wait for it. A binding cannot change its role, so
// Replace deletes and creates it.
func plan(in Inputs, await func(apply.Step) apply.Step) []apply.Step {
	return []apply.Step{
		{
			Condition: kibashipv1.ConditionAccessReady, Replace: true,
			Objects: []apply.Set{apply.Only(operatorBinding(in))},
		},
		await(apply.Step{
			Condition: kibashipv1.ConditionAccessReady,
			Objects:   []apply.Set{apply.All([]*corev1.ServiceAccount{serviceAccount(in)}), apply.All([]*rbacv1.Role{adminRole(in)})},
		}),
		await(apply.Step{
			Condition: kibashipv1.ConditionAccessReady, Replace: true,
			Objects: []apply.Set{apply.All([]*rbacv1.RoleBinding{adminBinding(in)})},
		}),
		await(apply.Step{
			Condition: kibashipv1.ConditionLimitsReady,
			Objects: []apply.Set{
				apply.All(quotas(in)), apply.All(limitRanges(in)), apply.All[*networkingv1.NetworkPolicy](networkPolicies(in)),
			},
		}),
	}
}
