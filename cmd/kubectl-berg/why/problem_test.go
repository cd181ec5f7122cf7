package why

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
	"github.com/bergctf/berg-operator/internal/berg/view"
)

func needsPerson(i *bergv1.ChallengeInstance) bool {
	row := view.NewRow(i)
	return row.NeedsPerson
}

// list, doctor, page and why must agree on what is a problem.
func TestRowsAgreeWithExplain(t *testing.T) {
	for name, tc := range map[string]struct {
		v       View
		problem view.Reason
		broken  bool
	}{
		"healthy":          {newView(), "", false},
		"being started":    {newView(sets(bergv1.ConditionPodsReady, metav1.ConditionUnknown, bergv1.ReasonStarting, ""), instance(func(i *bergv1.ChallengeInstance) { i.Status.StartedAt = &metav1.Time{Time: noon} })), "", false},
		"cannot start":     {newView(sets(bergv1.ConditionPodsReady, metav1.ConditionFalse, "ImagePullBackOff", "")), "ImagePullBackOff", true},
		"crashes":          {newView(sets(bergv1.ConditionHealthy, metav1.ConditionFalse, "CrashLoopBackOff", "")), "CrashLoopBackOff", true},
		"not ready":        {newView(sets(bergv1.ConditionHealthy, metav1.ConditionFalse, bergv1.ReasonPodsNotReady, "Not ready: web")), bergv1.ReasonPodsNotReady, true},
		"queued":           {newView(sets(bergv1.ConditionAdmitted, metav1.ConditionFalse, bergv1.ReasonQueued, "")), bergv1.ReasonQueued, false},
		"busy owner":       {newView(sets(bergv1.ConditionNamespaceCreated, metav1.ConditionFalse, bergv1.ReasonOwnerBusy, "")), bergv1.ReasonOwnerBusy, false},
		"refused":          {newView(sets(bergv1.ConditionServicesCreated, metav1.ConditionFalse, bergv1.ReasonRefused, "")), bergv1.ReasonRefused, true},
		"withdrawn":        {newView(sets(bergv1.ConditionChallengeFound, metav1.ConditionFalse, bergv1.ReasonChallengeMissing, "")), "", false},
		"deletion refused": {newView(sets(bergv1.ConditionNamespaceDeleted, metav1.ConditionFalse, bergv1.ReasonDeletionBlocked, "")), bergv1.ReasonDeletionBlocked, true},
	} {
		if got := view.FirstReason(tc.v.Instance); got != tc.problem {
			t.Errorf("%s: %q, want %q", name, got, tc.problem)
		}
		if got := needsPerson(tc.v.Instance); got != tc.broken {
			t.Errorf("%s: broken %v", name, got)
		}
		if f := Explain(tc.v); (f.Level == console.Problem) != tc.broken {
			t.Errorf("%s: why says %s: %s", name, f.Level, f.Sentence)
		}
	}
	if failed := (&bergv1.ChallengeInstance{Status: bergv1.ChallengeInstanceStatus{Phase: bergv1.PhaseFailed}}); !needsPerson(failed) {
		t.Error("a Failed instance has no problem")
	}
	waits := newView(sets(bergv1.ConditionChallengeFound, metav1.ConditionFalse, bergv1.ReasonFrozen, ""))
	if needsPerson(waits.Instance) {
		t.Error("an instance that waits for the end of a freeze is broken")
	}
}
