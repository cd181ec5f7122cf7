package status

import (
	"maps"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

func TestQueuedInstancesArePendingAndDoNotExpire(t *testing.T) {
	cfg := config.Challenge{MaxInstances: 2, StartDeadline: time.Minute, Timeout: time.Hour}
	c := candidate("a", 0)
	out := Outcome{Observed: Observed{Candidate: c}, Problem: QueuedProblem(c, cfg)}
	Compute(out, cfg, noon)
	s := c.Instance.Status
	if s.Phase != bergv1.PhasePending || s.StartedAt != nil || s.ExpiresAt != nil || s.ChallengeSnapshot != nil {
		t.Errorf("%+v", s)
	}
	if !Queued(c.Instance) {
		t.Error("it does not say that it waits")
	}
	for name, want := range map[string]metav1.ConditionStatus{
		bergv1.ConditionChallengeFound: metav1.ConditionTrue, bergv1.ConditionFlagValidation: metav1.ConditionTrue,
		bergv1.ConditionAdmitted: metav1.ConditionFalse, bergv1.ConditionNamespaceCreated: metav1.ConditionUnknown,
		bergv1.ConditionPodsReady: metav1.ConditionUnknown,
	} {
		if !meta.IsStatusConditionPresentAndEqual(s.Conditions, name, want) {
			t.Errorf("%s is not %s", name, want)
		}
	}
	before := c.Instance.DeepCopy()
	Compute(Outcome{Observed: Observed{Candidate: c}, Problem: QueuedProblem(c, cfg)}, cfg, noon.Add(time.Hour))
	if !maps.EqualFunc(reasons(before), reasons(c.Instance), func(a, b string) bool { return a == b }) || UntilStartDeadline(c.Instance, cfg, noon.Add(time.Hour)) != 0 {
		t.Error("time changes what is written of it")
	}

	// Another problem takes its place.
	Compute(Outcome{Observed: Observed{Candidate: c}, Problem: &outcome.Problem{
		Condition: bergv1.ConditionNamespaceCreated, Reason: bergv1.ReasonOwnerBusy, Class: outcome.Waiting, Message: "why",
	}}, cfg, noon)
	if Queued(c.Instance) || !meta.IsStatusConditionPresentAndEqual(c.Instance.Status.Conditions, bergv1.ConditionAdmitted, metav1.ConditionUnknown) {
		t.Errorf("%v", c.Instance.Status.Conditions)
	}

	started(c.Instance)
	Compute(Outcome{Observed: Observed{Candidate: c, Bounded: true}, Problem: BeingBuilt}, cfg, noon)
	if !meta.IsStatusConditionTrue(c.Instance.Status.Conditions, bergv1.ConditionAdmitted) {
		t.Errorf("%v", c.Instance.Status.Conditions)
	}
	if err := conditions.Violations(before.Status.Conditions, c.Instance.Status.Conditions, c.Instance.Generation); err != nil {
		t.Error(err)
	}
}

func TestWithoutALimitThereIsNoAdmittedCondition(t *testing.T) {
	c := candidate("a", 0, wasStarted)
	Compute(Outcome{Observed: Observed{Candidate: c}}, config.Challenge{}, noon)
	if meta.FindStatusCondition(c.Instance.Status.Conditions, bergv1.ConditionAdmitted) != nil {
		t.Error("there is a condition")
	}
}

func TestQueuedProblemNamesTheLimits(t *testing.T) {
	one := candidate("a", 0, func(c *Candidate) {
		c.Challenge.Spec.MaxInstances, c.Key = 1, types.NamespacedName{Namespace: "berg", Name: "shop"}
	})
	for name, tc := range map[string]struct {
		c        Candidate
		all      int
		says     string
		saysNone string
	}{
		"all":           {candidate("a", 0), 5, "CHALLENGE_MAX_INSTANCES", "spec.maxInstances"},
		"the Challenge": {one, 0, "spec.maxInstances of Challenge berg/shop", "CHALLENGE_MAX_INSTANCES"},
		"both":          {one, 5, "CHALLENGE_MAX_INSTANCES or spec.maxInstances of Challenge berg/shop", "5"},
	} {
		got := QueuedProblem(tc.c, config.Challenge{MaxInstances: tc.all}).Message
		if !strings.Contains(got, tc.says) || strings.Contains(got, tc.saysNone) {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func reasons(i *bergv1.ChallengeInstance) map[string]string {
	all := map[string]string{}
	for _, c := range i.Status.Conditions {
		all[c.Type] = c.Reason + c.Message
	}
	return all
}
