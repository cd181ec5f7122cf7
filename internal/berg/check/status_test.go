package check

import (
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

func TestALifeOfStatuses(t *testing.T) {
	o := Observed{Check: checkOf(func(c *bergv1.ChallengeCheck) { c.Spec.Schedule.Every, c.Spec.HistoryLimit = "1h", 2 }), Challenge: challengeOf()}
	s := &o.Check.Status
	var before []metav1.Condition
	says := func(step string, solvable, running metav1.ConditionStatus, reason string) {
		t.Helper()
		if err := conditions.Violations(before, s.Conditions, o.Check.Generation); err != nil {
			t.Errorf("%s: %v", step, err)
		}
		before = append([]metav1.Condition(nil), s.Conditions...)
		if c := apimeta.FindStatusCondition(s.Conditions, bergv1.CheckConditionSolvable); c.Status != solvable {
			t.Errorf("%s: Solvable is %s, want %s", step, c.Status, solvable)
		}
		if c := apimeta.FindStatusCondition(s.Conditions, reconcile.ConditionReady); c.Status != solvable {
			t.Errorf("%s: Ready is %s, want %s", step, c.Status, solvable)
		}
		if stalled := apimeta.IsStatusConditionTrue(s.Conditions, reconcile.ConditionStalled); stalled != (solvable == metav1.ConditionFalse) {
			t.Errorf("%s: Stalled is %v while Solvable is %s", step, stalled, solvable)
		}
		if c := apimeta.FindStatusCondition(s.Conditions, bergv1.CheckConditionRunning); c.Status != running || c.Reason != reason {
			t.Errorf("%s: Running is %s, %s; want %s, %s", step, c.Status, c.Reason, running, reason)
		}
	}
	now := noon
	compute := func(change func(*state), at time.Time) {
		r := state{Observed: o}
		change(&r)
		computeStatus(o.Check, r, nil, at).SetOn(&s.Conditions, o.Check.Generation, at)
	}
	round := func(v Assessment) {
		t.Helper()
		compute(func(r *state) { r.Proof = "digest" }, now)
		says("start", solvableCondition(s.LastResult).Status, metav1.ConditionTrue, bergv1.ReasonStarting)
		if s.NextRunAt != nil || s.RetryAt != nil {
			t.Errorf("the next one is announced while one is made: %v, %v", s.NextRunAt, s.RetryAt)
		}
		compute(func(r *state) {
			r.Assessment = Assessment{Stage: bergv1.CheckReasonSolving, Message: "The solver runs"}
		}, now.Add(time.Second))
		says("solving", solvableCondition(s.LastResult).Status, metav1.ConditionTrue, bergv1.CheckReasonSolving)
		compute(func(r *state) { r.Assessment = v }, now.Add(time.Minute))
		says("result", solvableCondition(s.LastResult).Status, metav1.ConditionTrue, bergv1.CheckReasonEnding)
		again := s.DeepCopy()
		compute(func(*state) {}, now.Add(80*time.Second))
		if !equality.Semantic.DeepEqual(again, s) {
			t.Error("waiting for the end changes the status")
		}
		compute(func(r *state) { r.Gone = true }, now.Add(90*time.Second))
		says("rest", solvableCondition(s.LastResult).Status, metav1.ConditionFalse, bergv1.CheckReasonIdle)
		now = now.Add(time.Hour)
	}

	round(brokenOff("Players wait"))
	if s.LastResult != nil || s.RetryAt == nil || !s.NextRunAt.Equal(s.RetryAt) {
		t.Errorf("after one that was broken off: %v, %v, %v", s.LastResult, s.RetryAt, s.NextRunAt)
	}
	round(Assessment{Result: &bergv1.CheckResult{Result: bergv1.CheckSolved, Message: "The solver found the flag"}})
	if want := now; !s.NextRunAt.Time.Equal(want) {
		t.Errorf("the next one is due at %s, want %s", s.NextRunAt, want)
	}
	if s.LastResult.Generation != 2 || s.LastResult.ChallengeGeneration != 3 || s.LastResult.ChallengeUID != "u" || s.LastResult.FinishedAt == nil {
		t.Errorf("the result is of %+v", s.LastResult.CheckRun)
	}
	v := failed(bergv1.CheckSolverCrashed, "exit code 1")
	v.Result.Output = "panic"
	round(v)
	round(failed(bergv1.CheckNeverStarted, "no image"))
	if len(s.History) != 2 || s.History[0].Result != bergv1.CheckNeverStarted || s.History[1].Result != bergv1.CheckSolverCrashed || s.History[1].Output != "" {
		t.Errorf("history %+v", s.History)
	}
}

func TestWaiting(t *testing.T) {
	none := func(*Observed) {}
	for name, tc := range map[string]struct {
		change func(*Observed)
		want   string
	}{
		"it may begin":             {none, ""},
		"suspended":                {func(o *Observed) { o.Check.Spec.Suspend = true }, bergv1.CheckReasonSuspended},
		"the Challenge is missing": {func(o *Observed) { o.Challenge = nil }, bergv1.ReasonChallengeMissing},
		"no flag":                  {func(o *Observed) { o.Challenge.Spec.Containers[0].DynamicFlag = nil }, bergv1.CheckReasonNoFlag},
		"a flag for all":           {func(o *Observed) { static(o) }, ""},
		"nothing has changed":      {func(o *Observed) { solved(o.Check) }, bergv1.CheckReasonIdle},
		"it is too early":          {func(o *Observed) { o.Check.Status.RetryAt = atPtr(time.Second) }, bergv1.CheckReasonIdle},
		"frozen": {func(o *Observed) {
			o.Challenge.Annotations = map[string]string{bergv1.AnnotationFrozen: "yes"}
		}, bergv1.ReasonFrozen},
		"players":         {playersWait, bergv1.CheckReasonPlayersFirst},
		"another is made": {func(o *Observed) { o.Contenders = append(o.Contenders, contender{UID: "a", Running: true}) }, bergv1.CheckReasonQueued},
	} {
		o := Observed{Check: checkOf(), Challenge: challengeOf()}
		o.Contenders = []contender{{UID: o.Check.UID, Due: noon}}
		tc.change(&o)
		reason, message := waiting(o, 1, noon)
		if reason != tc.want || (reason == "") != (message == "") {
			t.Errorf("%s: %s (%s), want %s", name, reason, message, tc.want)
		}
	}
}

func TestErrorsNameNoFlag(t *testing.T) {
	o := observedWith(static)
	r := &Reconciler{Access: reconcile.Access{Client: clientOf(t, nil, o.Check, o.Challenge, instance(o.Check, o.Instance.Spec.Flag))}}
	r.Config.Challenge.Namespace = o.Challenge.Namespace
	cause := errors.New("denied: " + flagOfTests + " and flag{for_all}")
	o.PodRefused = cause.Error()
	if message := r.assess(t.Context(), o, noon.Add(2*time.Minute)).Message; strings.Contains(message, "check_") || !strings.Contains(message, "denied: ") {
		t.Errorf("the pod of the solver: %q", message)
	}
	err := r.redact(t.Context(), o.Check, cause)
	if !errors.Is(err, cause) || strings.Contains(err.Error(), "check_") || strings.Contains(err.Error(), "for_all") {
		t.Errorf("%v", err)
	}
}

func TestMetricsOfChecks(t *testing.T) {
	of := func(name string, age time.Duration, result bergv1.CheckResultType) bergv1.ChallengeCheck {
		c := *checkOf()
		c.Spec.ChallengeRef.Name, c.CreationTimestamp = name, atNoon(-age)
		if result != "" {
			c.Status.LastResult = &bergv1.CheckResult{Result: result}
		}
		return c
	}
	all := []bergv1.ChallengeCheck{of("a", 1, bergv1.CheckSolved), of("b", 2, bergv1.CheckTooSlow), of("b", 3, bergv1.CheckSolved), of("c", 4, "")}
	got := solvables(all)
	if len(got) != 2 || got["a"] != 1 || got["b"] != 0 {
		t.Errorf("%v", got)
	}
	for n := range maxChallenges + 5 {
		all = append(all, of(strings.Repeat("x", n+1), 0, bergv1.CheckSolved))
	}
	if got := solvables(all); len(got) != maxChallenges+1 || got[otherChallenges] != 1 {
		t.Errorf("%d series, %v for the others", len(got), got[otherChallenges])
	}

	// A problem that cannot be fixed now is not reported again.
	suspended, without := of("d", 1, bergv1.CheckTooSlow), of("e", 1, bergv1.CheckTooSlow)
	suspended.Spec.Suspend = true
	o := Observed{Check: &without}
	reason, message := obstacle(o.Check, nil, noon)
	computeStatus(&without, state{Observed: o, Reason: reason, Message: message}, nil, noon)
	if got := solvables([]bergv1.ChallengeCheck{suspended, without}); len(got) != 0 {
		t.Errorf("%v of one that is suspended and one whose Challenge is gone", got)
	}
	o.Challenge = challengeOf()
	computeStatus(&without, state{Observed: o, Reason: bergv1.CheckReasonIdle, Message: "none is due"}, nil, noon)
	suspended.Spec.Suspend = false
	if got := solvables([]bergv1.ChallengeCheck{suspended, without}); len(got) != 2 {
		t.Errorf("%v of those that are back", got)
	}
}
