package status

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/config"
)

// What a check of the network policies found stays in the status until a later check finds something else.
func TestPoliciesInPlace(t *testing.T) {
	for name, tc := range map[string]struct {
		before   string
		enforced metav1.ConditionStatus
		want     string
	}{
		"not checked":                        {bergv1.ReasonCreated, metav1.ConditionUnknown, bergv1.ReasonCreated},
		"enforced":                           {bergv1.ReasonCreated, metav1.ConditionTrue, bergv1.ReasonCreated},
		"ignored":                            {bergv1.ReasonCreated, metav1.ConditionFalse, bergv1.ReasonNotEnforced},
		"ignored, another process":           {bergv1.ReasonNotEnforced, metav1.ConditionUnknown, bergv1.ReasonNotEnforced},
		"enforced after it was ignored":      {bergv1.ReasonNotEnforced, metav1.ConditionTrue, bergv1.ReasonCreated},
		"ignored, of an instance that waits": {bergv1.ReasonWaiting, metav1.ConditionFalse, bergv1.ReasonNotEnforced},
	} {
		out := Outcome{Observed: Observed{Candidate: Candidate{Instance: &bergv1.ChallengeInstance{}}, Policies: config.NetworkPolicyKubernetes, Enforced: tc.enforced}}
		out.Instance.Status.Conditions = []metav1.Condition{{Type: bergv1.ConditionNetworkPolicyCreated, Status: metav1.ConditionTrue, Reason: tc.before}}
		reason, message := describePolicies(out)
		if reason != tc.want || strings.Contains(message, "does not enforce") != (reason == bergv1.ReasonNotEnforced) {
			t.Errorf("%s: %s: %s", name, reason, message)
		}
	}
}
