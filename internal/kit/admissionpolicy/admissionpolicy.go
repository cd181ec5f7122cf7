// Package admissionpolicy finds out whether the API server enforces a ValidatingAdmissionPolicy. Some limit the operator's
// account where RBAC cannot, and others keep pods confined. The Operator Lifecycle Manager does not install them, and an
// administrator can delete them: until they are in force, the operator starts nothing that relies on them.
package admissionpolicy

import (
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Fence is the policy of config/fence, which limits what the operator's account may write.
const Fence = "berg-operator-fence"

// Install is the command that installs the policies of all API groups.
const Install = "kubectl apply --server-side -f deploy/fence.yaml"

// Gap returns why the API server does not enforce a policy everywhere, as a clause; empty if it does. The binding has the name of
// the policy. Both are nil if they do not exist. It compares the content too: a policy of the right name that allows everything
// would be worse than none, which at least is noticed.
func Gap(policy *admissionregistrationv1.ValidatingAdmissionPolicy, binding *admissionregistrationv1.ValidatingAdmissionPolicyBinding) string {
	switch {
	case policy == nil:
		return "it does not exist"
	case ptr.Deref(policy.Spec.FailurePolicy, admissionregistrationv1.Fail) != admissionregistrationv1.Fail:
		return "its failurePolicy is not Fail"
	case differs(policy):
		return "its content is not that of this version of the operator"
	case binding == nil:
		return "it has no ValidatingAdmissionPolicyBinding of its name"
	case binding.Spec.PolicyName != policy.Name:
		return fmt.Sprintf("its ValidatingAdmissionPolicyBinding names the policy %s", binding.Spec.PolicyName)
	case !slices.Contains(binding.Spec.ValidationActions, admissionregistrationv1.Deny):
		return "its ValidatingAdmissionPolicyBinding lacks the action Deny"
	case binding.Spec.MatchResources != nil && limits(binding.Spec.MatchResources):
		return "its ValidatingAdmissionPolicyBinding leaves out a part of the objects"
	default:
		return ""
	}
}

// limits reports whether a binding is for a part of the objects only. The API server fills in empty selectors.
func limits(m *admissionregistrationv1.MatchResources) bool {
	return len(m.ResourceRules) > 0 || len(m.ExcludeResourceRules) > 0 || selects(m.NamespaceSelector) || selects(m.ObjectSelector)
}

func selects(s *metav1.LabelSelector) bool {
	return s != nil && len(s.MatchLabels)+len(s.MatchExpressions) > 0
}
