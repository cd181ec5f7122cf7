package admissionpolicy

import (
	"os"
	"strconv"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

// readPolicies returns the policies that an administrator applies, by their names.
func readPolicies(t *testing.T) map[string]*admissionregistrationv1.ValidatingAdmissionPolicy {
	t.Helper()
	found := map[string]*admissionregistrationv1.ValidatingAdmissionPolicy{}
	for _, file := range []string{"fence.yaml", "helm/berg-operator/files/berg-record.yaml", "helm/berg-operator/files/berg-warm.yaml"} {
		raw, err := os.ReadFile("../../../deploy/" + file)
		if err != nil {
			t.Fatal(err)
		}
		for document := range strings.SplitSeq(string(raw), "\n---\n") {
			policy := &admissionregistrationv1.ValidatingAdmissionPolicy{}
			if err := yaml.Unmarshal([]byte(document), policy); err != nil {
				t.Fatal(err)
			}
			if policy.Kind == "ValidatingAdmissionPolicy" {
				found[policy.Name] = policy
			}
		}
	}
	return found
}

func TestContentsAreThoseOfTheInstallation(t *testing.T) {
	policies := readPolicies(t)
	if len(policies) != len(contents) {
		t.Errorf("%d policies are installed, and %d known", len(policies), len(contents))
	}
	for name, policy := range policies {
		if got := sum(policy.Spec); got != contents[name].sum {
			t.Errorf("%s has changed: raise its revision in config and in content.go, and set the sum to %q", name, got)
		}
		if got := policy.Annotations[annotationRevision]; got != strconv.Itoa(contents[name].revision) {
			t.Errorf("%s has the revision %s, and content.go %d", name, got, contents[name].revision)
		}
	}
}

func TestContentWithOtherNamesOfTheInstallation(t *testing.T) {
	for name, policy := range readPolicies(t) {
		before := sum(policy.Spec)
		rename := func(expression string) string { // as the chart does
			for _, pair := range [][2]string{
				{"^system:serviceaccount:[^:]+:(berg-operator|", "^system:serviceaccount:[^:]+:my.account$|^system:serviceaccount:[^:]+:(challenges|"},
				{".matches('^(berg-operator|", ".matches('^(challenges|"},
				{"s.name == 'berg-operator-controller-manager'", "s.name == 'my.account'"},
				{"berg-operator-system", "ctf"},
			} {
				expression = strings.ReplaceAll(expression, pair[0], pair[1])
			}
			return expression
		}
		for i := range policy.Spec.MatchConditions {
			policy.Spec.MatchConditions[i].Expression = rename(policy.Spec.MatchConditions[i].Expression)
		}
		for i := range policy.Spec.Variables {
			policy.Spec.Variables[i].Expression = rename(policy.Spec.Variables[i].Expression)
		}
		for i := range policy.Spec.Validations {
			policy.Spec.Validations[i].Expression = rename(policy.Spec.Validations[i].Expression)
		}
		if sum(policy.Spec) != before {
			t.Errorf("%s: another content with other names", name)
		}
	}
}

func TestGap(t *testing.T) {
	type (
		policy  = admissionregistrationv1.ValidatingAdmissionPolicy
		binding = admissionregistrationv1.ValidatingAdmissionPolicyBinding
		match   = admissionregistrationv1.MatchResources
	)
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	const different = "its content is not that of this version"
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
		"a later version": {func(p **policy, _ **binding) {
			(*p).Spec.Validations, (*p).Annotations[annotationRevision] = (*p).Spec.Validations[1:], "1000"
		}, ""},

		"a rule less":      {func(p **policy, _ **binding) { (*p).Spec.Validations = (*p).Spec.Validations[1:] }, different},
		"another rule":     {func(p **policy, _ **binding) { (*p).Spec.Validations[0].Expression = "true" }, different},
		"another variable": {func(p **policy, _ **binding) { (*p).Spec.Variables[0].Expression = "true" }, different},
		"another account":  {func(p **policy, _ **binding) { (*p).Spec.MatchConditions[0].Expression = "false" }, different},
		"one more condition": {func(p **policy, _ **binding) {
			(*p).Spec.MatchConditions = append((*p).Spec.MatchConditions, admissionregistrationv1.MatchCondition{Name: "a", Expression: "false"})
		}, different},
		"fewer kinds": {func(p **policy, _ **binding) {
			(*p).Spec.MatchConstraints.ResourceRules = (*p).Spec.MatchConstraints.ResourceRules[1:]
		}, different},
		"all kinds but some": {func(p **policy, _ **binding) {
			(*p).Spec.MatchConstraints.ExcludeResourceRules = (*p).Spec.MatchConstraints.ResourceRules[:1]
		}, different},
		"only some namespaces": {func(p **policy, _ **binding) { (*p).Spec.MatchConstraints.NamespaceSelector = selector }, different},
		"an earlier version": {func(p **policy, _ **binding) {
			(*p).Spec.Validations, (*p).Annotations = (*p).Spec.Validations[1:], nil
		}, different},

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
		p := readPolicies(t)[Fence]
		b := &binding{Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: Fence, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		}}
		tc.change(&p, &b)
		if got := Gap(p, b); (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
