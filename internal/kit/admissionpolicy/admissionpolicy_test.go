package admissionpolicy

import (
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestGap(t *testing.T) {
	type (
		policy  = admissionregistrationv1.ValidatingAdmissionPolicy
		binding = admissionregistrationv1.ValidatingAdmissionPolicyBinding
		match   = admissionregistrationv1.MatchResources
	)
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	for name, tc := range map[string]struct {
		change func(**policy, **binding)
		want   string // a part of it; empty: there is no gap
	}{
		"in force": {func(**policy, **binding) {}, ""},
		"also a warning": {func(_ **policy, b **binding) {
			(*b).Spec.ValidationActions = append((*b).Spec.ValidationActions, admissionregistrationv1.Audit)
		}, ""},
		"defaults are stored": {func(p **policy, b **binding) {
			(*p).Spec.FailurePolicy, (*b).Spec.MatchResources = ptr.To(admissionregistrationv1.Fail), &match{NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{}}
		}, ""},

		"no policy":         {func(p **policy, _ **binding) { *p = nil }, "does not exist"},
		"no binding":        {func(_ **policy, b **binding) { *b = nil }, "no ValidatingAdmissionPolicyBinding"},
		"neither":           {func(p **policy, b **binding) { *p, *b = nil, nil }, "does not exist"},
		"errors are let in": {func(p **policy, _ **binding) { (*p).Spec.FailurePolicy = ptr.To(admissionregistrationv1.Ignore) }, "failurePolicy"},
		"of another policy": {func(_ **policy, b **binding) { (*b).Spec.PolicyName = "other" }, "other"},
		"it only warns": {func(_ **policy, b **binding) {
			(*b).Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Warn}
		}, "Deny"},
		"some namespaces": {func(_ **policy, b **binding) { (*b).Spec.MatchResources = &match{NamespaceSelector: selector} }, "a part"},
		"some objects":    {func(_ **policy, b **binding) { (*b).Spec.MatchResources = &match{ObjectSelector: selector} }, "a part"},
		"some kinds": {func(_ **policy, b **binding) {
			(*b).Spec.MatchResources = &match{ResourceRules: make([]admissionregistrationv1.NamedRuleWithOperations, 1)}
		}, "a part"},
		"all but some": {func(_ **policy, b **binding) {
			(*b).Spec.MatchResources = &match{ExcludeResourceRules: make([]admissionregistrationv1.NamedRuleWithOperations, 1)}
		}, "a part"},
	} {
		p := &policy{ObjectMeta: metav1.ObjectMeta{Name: Fence}}
		b := &binding{Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: Fence, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		}}
		tc.change(&p, &b)
		if got := Gap(p, b); (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
