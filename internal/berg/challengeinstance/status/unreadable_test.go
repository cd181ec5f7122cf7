package status

import (
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// Without the content of its start an instance is left as it is, until a rollout.
func TestAnInstanceWhoseContentCannotBeRead(t *testing.T) {
	cfg := config.Challenge{Timeout: time.Hour}
	rollout := func(i *bergv1.ChallengeInstance) {
		wasReady(i)
		i.Annotations = map[string]string{bergv1.AnnotationRollout: "1"}
	}
	for name, tc := range map[string]struct {
		state     func(*bergv1.ChallengeInstance)
		challenge *bergv1.Challenge
		phase     bergv1.Phase
		adopts    bool
	}{
		"it runs":                              {wasReady, challengeOf(webOnly()), bergv1.PhaseRunning, false},
		"it runs, and the Challenge is gone":   {wasReady, nil, bergv1.PhaseRunning, false},
		"a rollout is requested":               {rollout, challengeOf(webOnly()), bergv1.PhaseRunning, true},
		"a rollout of nothing is requested":    {rollout, nil, bergv1.PhaseRunning, false},
		"it never ran":                         {started, challengeOf(webOnly()), bergv1.PhaseCreating, true},
		"it never ran, without its Challenge":  {started, nil, bergv1.PhaseCreating, false},
		"it never ran, and it is not runnable": {started, challengeOf(manifests.Snapshot{}), bergv1.PhaseCreating, false},
	} {
		o := Observed{Candidate: Candidate{Instance: testInstance(tc.state), Challenge: tc.challenge, Unreadable: errors.New("the Secret a is missing")}}
		problem := Check(o, cfg)
		if problem == nil || problem.Reason != bergv1.ReasonRevisionMissing || problem.Class != outcome.Retry || !strings.Contains(problem.Message, "the Secret a is missing") {
			t.Errorf("%s: %+v", name, problem)
			continue
		}
		if got := RolloutDue(o, cfg, noon); got != tc.adopts {
			t.Errorf("%s: adopts the Challenge: %v", name, got)
		}
		compute(Outcome{Observed: o, Problem: problem}, cfg, noon)
		s := o.Instance.Status
		if s.Phase != tc.phase || meta.IsStatusConditionTrue(s.Conditions, bergv1.ConditionReady) {
			t.Errorf("%s: it is %s: %+v", name, s.Phase, s.Conditions)
		}
		if c := meta.FindStatusCondition(s.Conditions, bergv1.ConditionUpToDate); c.Status != metav1.ConditionUnknown || c.Reason != bergv1.ReasonRevisionMissing {
			t.Errorf("%s: UpToDate is %s, %s", name, c.Status, c.Reason)
		}
	}
}

// The first connection to the ports takes milliseconds: the status does not change for it.
func TestAConnectionThatIsAwaitedCostsNoWrite(t *testing.T) {
	cfg := config.Challenge{Timeout: time.Hour}
	out := startingWith(nil, pod("web", false))
	compute(out, cfg, noon)
	before := out.Instance.DeepCopy()
	out.Pods[0], out.Connecting = pod("web", true), true
	compute(out, cfg, noon.Add(time.Second))
	if out.Instance.Status.ReadyAt != nil || asJSON(t, before.Status.Conditions) != asJSON(t, out.Instance.Status.Conditions) {
		t.Errorf("written:\n%s\n%s", asJSON(t, before.Status.Conditions), asJSON(t, out.Instance.Status.Conditions))
	}
	out.Connecting = false
	compute(out, cfg, noon.Add(time.Second))
	if out.Instance.Status.Phase != bergv1.PhaseRunning {
		t.Errorf("connected, it is %s", out.Instance.Status.Phase)
	}
}
