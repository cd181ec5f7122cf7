package admissionpolicy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"regexp"
	"strconv"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// annotationRevision on a policy counts the changes of its content.
const annotationRevision = "berg.norelect.ch/policy-revision"

// content is what a policy of config contains.
type content struct {
	revision int
	sum      string
}

// contents are the policies that this program was built with, by their names. A change of a policy raises its revision, also that of
// its annotation in config, so that an administrator may apply the policies of a later version first.
var contents = map[string]content{
	Fence:                                  {3, "e6ae66a1a72f54cb"},
	"berg-operator-fence-deletions":        {1, "a90b45d7ba62c922"},
	"berg-operator-own-namespace":          {2, "b29a7b23b4af6e02"},
	"berg-operator-kibaship-tenants":       {1, "f25d0c4f706016b6"},
	"berg-operator-kibaship-confined-pods": {1, "c69d081629abb9a9"},
	"berg-operator-tunnel-confined-pods":   {1, "c69d081629abb9a9"},
	"berg-operator-berg-record-logs":       {1, "bceb7f8ed7e8d389"},
	"berg-operator-berg-warm-pods":         {1, "f75a0e5733a0849e"},
}

// differs reports whether the content of a policy is neither that of this version of the program nor a later one. A policy with a
// higher revision counts as in force, because an administrator applies the new file before an upgrade, and packages of several
// versions share one policy.
func differs(policy *admissionregistrationv1.ValidatingAdmissionPolicy) bool {
	built, known := contents[policy.Name]
	if !known || sum(policy.Spec) == built.sum {
		return false
	}
	revision, err := strconv.Atoi(policy.Annotations[annotationRevision])
	return err != nil || revision <= built.revision
}

// accounts match where a policy names the operator's accounts and their namespace, which an installation may choose.
var accounts = []struct {
	pattern *regexp.Regexp
	usual   string
}{
	{regexp.MustCompile(`(\^system:serviceaccount:\[\^:\]\+:)[a-z0-9.-]+\$\|\^system:serviceaccount:\[\^:\]\+:(\([a-z0-9-]+\|container-tunnel-operator\|)`), "$1$2"},
	{regexp.MustCompile(`\([a-z0-9-]+\|container-tunnel-operator\|`), "(berg-operator|container-tunnel-operator|"},
	{regexp.MustCompile(`request\.namespace in \['[a-z0-9-]+'\]`), "request.namespace in ['']"},
	{regexp.MustCompile(`s\.name == '[a-z0-9.-]+' && s\.namespace == '[a-z0-9-]+'`), "s.name == '' && s.namespace == ''"},
}

// sum returns a hash of a policy, with the defaults that the API server fills in. The API server stores more than the file says,
// so the defaults are filled in on both sides. 64 bits are enough: this finds mistakes and old versions. An account that may
// write policies can also remove them.
func sum(spec admissionregistrationv1.ValidatingAdmissionPolicySpec) string {
	spec = *spec.DeepCopy()
	spec.FailurePolicy = ptr.To(ptr.Deref(spec.FailurePolicy, admissionregistrationv1.Fail))
	if m := spec.MatchConstraints; m != nil {
		m.MatchPolicy = ptr.To(ptr.Deref(m.MatchPolicy, admissionregistrationv1.Equivalent))
		m.NamespaceSelector = ptr.To(ptr.Deref(m.NamespaceSelector, metav1.LabelSelector{}))
		m.ObjectSelector = ptr.To(ptr.Deref(m.ObjectSelector, metav1.LabelSelector{}))
		for i := range m.ResourceRules {
			m.ResourceRules[i].Scope = ptr.To(ptr.Deref(m.ResourceRules[i].Scope, admissionregistrationv1.AllScopes))
		}
	}
	for i, v := range spec.Variables {
		spec.Variables[i].Expression = withUsualAccounts(v.Expression)
	}
	for i, c := range spec.MatchConditions {
		spec.MatchConditions[i].Expression = withUsualAccounts(c.Expression)
	}
	for i, v := range spec.Validations {
		spec.Validations[i].Expression = withUsualAccounts(v.Expression)
	}
	raw, err := json.Marshal(spec)
	if err != nil {
		return ""
	}
	hash := sha256.Sum256(raw)
	return hex.EncodeToString(hash[:8])
}

func withUsualAccounts(expression string) string {
	for _, a := range accounts {
		expression = a.pattern.ReplaceAllString(expression, a.usual)
	}
	return expression
}
