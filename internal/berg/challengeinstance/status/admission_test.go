package status

import (
	"maps"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/admission"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

func TestAQueuedInstanceIsPendingAndItsTimeoutHasNotStarted(t *testing.T) {
	cfg := config.Challenge{MaxInstances: 2, StartDeadline: time.Minute, Timeout: time.Hour}
	c := candidate("a", 0)
	out := Outcome{Observed: Observed{Candidate: c}, Problem: WaitProblem(admission.Decision{Reason: admission.Full}, cfg)}
	compute(out, cfg, noon)
	s := c.Instance.Status
	if s.Phase != bergv1.PhasePending || s.StartedAt != nil || s.ExpiresAt != nil || s.ChallengeRevision != "" {
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
	compute(Outcome{Observed: Observed{Candidate: c}, Problem: WaitProblem(admission.Decision{Reason: admission.Full}, cfg)}, cfg, noon.Add(time.Hour))
	if !maps.EqualFunc(reasons(before), reasons(c.Instance), func(a, b string) bool { return a == b }) || UntilStartDeadline(c.Instance, cfg, noon.Add(time.Hour)) != 0 {
		t.Error("time changes what is written of it")
	}

	// Another problem keeps it now.
	compute(Outcome{Observed: Observed{Candidate: c}, Problem: &outcome.Problem{
		Condition: bergv1.ConditionNamespaceCreated, Reason: bergv1.ReasonOwnerBusy, Class: outcome.Waiting, Message: "why",
	}}, cfg, noon)
	if Queued(c.Instance) || !meta.IsStatusConditionPresentAndEqual(c.Instance.Status.Conditions, bergv1.ConditionAdmitted, metav1.ConditionUnknown) {
		t.Errorf("%v", c.Instance.Status.Conditions)
	}

	started(c.Instance)
	compute(Outcome{Observed: Observed{Candidate: c, Limited: true}, Problem: BeingBuilt}, cfg, noon)
	if !meta.IsStatusConditionTrue(c.Instance.Status.Conditions, bergv1.ConditionAdmitted) {
		t.Errorf("%v", c.Instance.Status.Conditions)
	}
	if err := conditions.Violations(before.Status.Conditions, c.Instance.Status.Conditions, c.Instance.Generation); err != nil {
		t.Error(err)
	}
}

func TestWithoutALimitThereIsNoConditionAdmitted(t *testing.T) {
	c := candidate("a", 0, wasStarted)
	compute(Outcome{Observed: Observed{Candidate: c}}, config.Challenge{}, noon)
	if meta.FindStatusCondition(c.Instance.Status.Conditions, bergv1.ConditionAdmitted) != nil {
		t.Error("there is a condition")
	}
}

func TestTheMessageNamesTheLimit(t *testing.T) {
	cfg := config.Challenge{MaxInstances: 5, NamespaceMaxInstances: 4, SourceMaxInstances: 3, SourceBudget: 2}
	d := admission.Decision{
		Instance: admission.Instance{
			Key: types.NamespacedName{Namespace: "event", Name: "one"}, Challenge: types.NamespacedName{Namespace: "berg", Name: "shop"}, Source: "team-1",
		},
		Ahead: types.NamespacedName{Namespace: "event", Name: "zero"},
	}
	foreign := d
	foreign.Reason, foreign.Ahead = admission.OwnerBusy, types.NamespacedName{Namespace: "secret", Name: "theirs"}
	if m := WaitProblem(foreign, cfg).Message; strings.Contains(m, "secret") || strings.Contains(m, "theirs") {
		t.Errorf("the message names an instance of another namespace: %s", m)
	}
	for reason, want := range map[admission.Reason]string{
		admission.OwnerBusy:       "Waiting for instance event/zero of the same owner and its namespace to be deleted",
		admission.SourceInstances: "the operator's SOURCE_MAX_INSTANCES (3) for source team-1 is reached",
		admission.SourceBudget:    "the operator's SOURCE_BUDGET (2) for source team-1 is reached",
		admission.AboveBudget:     "spec.cost of Challenge berg/shop is above the operator's SOURCE_BUDGET (2)",
		admission.ChallengeFull:   "spec.maxInstances of Challenge berg/shop is reached",
		admission.NamespaceFull:   "the operator's CHALLENGE_NAMESPACE_MAX_INSTANCES (4) for namespace event is reached",
		admission.Full:            "the operator's CHALLENGE_MAX_INSTANCES (5) is reached",
		admission.PlayersFirst:    "instances of players go first",
	} {
		d.Reason = reason
		p := WaitProblem(d, cfg)
		if !strings.Contains(p.Message, want) || (p.Reason == bergv1.ReasonQueued) != (reason != admission.OwnerBusy) {
			t.Errorf("%s: %s: %s", reason, p.Reason, p.Message)
		}
	}
}

func TestAStatusIsWrittenOnlyWhenItWouldSayAnotherThing(t *testing.T) {
	cfg := config.Challenge{Timeout: time.Hour}
	problems := map[string]*outcome.Problem{
		"queued":     WaitProblem(admission.Decision{Reason: admission.Full}, cfg),
		"owner busy": WaitProblem(admission.Decision{Reason: admission.OwnerBusy}, cfg),
		"long":       {Condition: bergv1.ConditionChallengeFound, Reason: bergv1.ReasonInvalidChallenge, Class: outcome.Blocked, Message: strings.Repeat("flag{a} is invalid; ", 500)},
	}
	for name, p := range problems {
		c := candidate("a", 0, func(c *Candidate) { c.Instance.Spec.Flag = "flag{a}" })
		if Reports(c.Instance, p) {
			t.Errorf("%s: an empty status says it", name)
		}
		compute(Outcome{Observed: Observed{Candidate: c}, Problem: p}, cfg, noon)
		if !Reports(c.Instance, p) {
			t.Errorf("%s: the status does not say it", name)
		}
		for change, modify := range map[string]func(*bergv1.ChallengeInstance){
			"nothing":    func(*bergv1.ChallengeInstance) {},
			"generation": func(i *bergv1.ChallengeInstance) { i.Generation++ },
			"freeze":     isFrozen,
			"reason": func(i *bergv1.ChallengeInstance) {
				meta.FindStatusCondition(i.Status.Conditions, p.Condition).Reason = "Other"
			},
			"message": func(i *bergv1.ChallengeInstance) {
				meta.FindStatusCondition(i.Status.Conditions, p.Condition).Message = "other"
			},
		} {
			changed := c.Instance.DeepCopy()
			modify(changed)
			before := changed.Status.DeepCopy()
			again := c
			again.Instance = changed
			compute(Outcome{Observed: Observed{Candidate: again}, Problem: p}, cfg, noon)
			wasWritten := !equality.Semantic.DeepEqual(before, &changed.Status)
			changed.Status = *before
			if says := Reports(changed, p); says && wasWritten {
				t.Errorf("%s: after a change of %s the status is not written", name, change)
			} else if !says && change == "nothing" {
				t.Errorf("%s: it is computed again without need", name)
			}
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
