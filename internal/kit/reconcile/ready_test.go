package reconcile

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

func TestReady(t *testing.T) {
	problem := func(class outcome.Class) *outcome.Problem {
		return &outcome.Problem{Class: class, Reason: "Broken", Message: "it is broken"}
	}
	for name, tc := range map[string]struct {
		problem *outcome.Problem
		ready   metav1.ConditionStatus
		reason  string
		stalled bool
	}{
		"no problem": {nil, metav1.ConditionTrue, "Done", false},
		"waiting":    {problem(outcome.Waiting), metav1.ConditionFalse, "Broken", false},
		"retried":    {problem(outcome.Retry), metav1.ConditionFalse, "Broken", false},
		"blocked":    {problem(outcome.Blocked), metav1.ConditionFalse, "Broken", true},
		"external":   {problem(outcome.External), metav1.ConditionFalse, "Broken", true},
	} {
		t.Run(name, func(t *testing.T) {
			// A condition Stalled of an earlier reconciliation does not outlive its problem.
			all := []metav1.Condition{{Type: ConditionStalled, Status: metav1.ConditionTrue, Reason: "Earlier", Message: "earlier"}}
			ReadyUnless(tc.problem, "Done", "done").SetOn(&all, 7, noon)
			ready, stalled := meta.FindStatusCondition(all, ConditionReady), meta.FindStatusCondition(all, ConditionStalled)
			if ready == nil || ready.Status != tc.ready || ready.Reason != tc.reason || ready.ObservedGeneration != 7 {
				t.Errorf("Ready is %+v", ready)
			}
			if (stalled != nil) != tc.stalled || stalled != nil && stalled.Reason != tc.reason {
				t.Errorf("Stalled is %+v", stalled)
			}
		})
	}
}
