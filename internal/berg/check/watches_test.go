package check

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// What wakes a check, and what does not: an event with thousands of players is not its business.
func TestPredicates(t *testing.T) {
	ours := instance(checkOf(), flagOfTests)
	theirs := &bergv1.ChallengeInstance{}
	solver := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	challenge := challengeOf()
	check := checkOf(func(c *bergv1.ChallengeCheck) { c.Status.Run = &bergv1.CheckRun{} })
	for name, tc := range map[string]struct {
		which  predicate.Predicate
		before client.Object
		change func(client.Object)
		want   bool
	}{
		"its instance is Running":        {progressed, ours, func(o client.Object) { o.(*bergv1.ChallengeInstance).Status.Phase = bergv1.PhaseRunning }, true},
		"its instance is labelled":       {progressed, ours, func(o client.Object) { o.SetLabels(map[string]string{"a": "b"}) }, false},
		"a player's instance is Running": {progressed, theirs, func(o client.Object) { o.(*bergv1.ChallengeInstance).Status.Phase = bergv1.PhaseRunning }, false},
		"a player begins to wait for room": {playersChanged, theirs, func(o client.Object) {
			o.(*bergv1.ChallengeInstance).Status.Conditions = []metav1.Condition{{Type: bergv1.ConditionPodsReady, Reason: unschedulable}}
		}, true},
		"a player's image is pulled": {playersChanged, theirs, func(o client.Object) {
			o.(*bergv1.ChallengeInstance).Status.Conditions = []metav1.Condition{{Type: bergv1.ConditionPodsReady, Reason: "ImagePullBackOff"}}
		}, false},
		"its own instance waits for room": {playersChanged, ours, func(o client.Object) {
			o.(*bergv1.ChallengeInstance).Status.Conditions = []metav1.Condition{{Type: bergv1.ConditionPodsReady, Reason: unschedulable}}
		}, false},
		"the solver has ended":       {solverChanged, solver, func(o client.Object) { o.(*corev1.Pod).Status.Phase = corev1.PodSucceeded }, true},
		"the solver got an address":  {solverChanged, solver, func(o client.Object) { o.(*corev1.Pod).Status.PodIP = "10.0.0.1" }, false},
		"the Challenge was edited":   {challengeChanged, challenge, func(o client.Object) { o.SetGeneration(9) }, true},
		"the Challenge was unfrozen": {challengeChanged, challenge, func(o client.Object) { o.SetAnnotations(map[string]string{bergv1.AnnotationFrozen: "x"}) }, true},
		"the Challenge was noted":    {challengeChanged, challenge, func(o client.Object) { o.SetAnnotations(map[string]string{"a": "b"}) }, false},
		"another check has ended":    {capacityFreed, check, func(o client.Object) { o.(*bergv1.ChallengeCheck).Status.Run = nil }, true},
		"another check was reported": {capacityFreed, check, func(o client.Object) { o.(*bergv1.ChallengeCheck).Status.ObservedGeneration = 9 }, false},
		"it begins to be deleted":    {endingBegins, check, func(o client.Object) { o.SetDeletionTimestamp(atPtr(0)) }, true},
	} {
		after := tc.before.DeepCopyObject().(client.Object)
		tc.change(after)
		if got := tc.which.Update(event.UpdateEvent{ObjectOld: tc.before, ObjectNew: after}); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
