package challengeinstance

import (
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/admission"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

func testAdmitter() *admitter {
	return &admitter{
		Reconciler: &Reconciler{Config: config.Berg{Challenge: config.Challenge{Namespace: "berg"}}},
		backoff:    outcome.NewBackoff(), delays: map[types.UID]delay{},
	}
}

func TestWhatBecomesOfAStart(t *testing.T) {
	of := schema.GroupResource{Resource: "challengeinstances"}
	for name, tc := range map[string]struct {
		err error
		// unknown: the next decision follows from the list of the API server.
		unknown bool
		// delayed: it is not written again for a moment; refused: it holds up no other until then.
		delayed, refused bool
		again            bool
	}{
		"written":  {nil, false, false, false, false},
		"conflict": {apierrors.NewConflict(of, "a", errors.New("x")), false, false, false, true},
		"gone":     {fmt.Errorf("%w: x", outcome.ErrGone), false, false, false, false},
		"refused":  {apierrors.NewForbidden(of, "a", errors.New("x")), false, true, true, true},
		"timeout":  {apierrors.NewTimeoutError("x", 1), true, true, false, true},
		"cut off":  {errors.New("EOF"), true, true, false, true},
	} {
		a := testAdmitter()
		a.synced = true
		again := a.settle(t.Context(), []*write{{Candidate: candidate("a", 0), done: true, sent: true, err: tc.err}}, false, noon)
		if a.synced == tc.unknown {
			t.Errorf("%s: decided by the cache: %v", name, a.synced)
		}
		if p, delayed := a.delays["a"]; delayed != tc.delayed || p.refused != tc.refused || delayed && !p.until.After(noon) {
			t.Errorf("%s: delayed %v, %+v", name, delayed, p)
		}
		if (again > 0) != tc.again || again > time.Second {
			t.Errorf("%s: the next round is due after %s", name, again)
		}
	}
}

func TestARoundThatWasNotFinishedIsFollowedByAnother(t *testing.T) {
	a := testAdmitter()
	unfinished := &write{Candidate: candidate("a", 0)}
	if again := a.settle(t.Context(), []*write{unfinished}, false, noon); again != immediately {
		t.Errorf("the next round is due after %s", again)
	}
	if again := a.settle(t.Context(), nil, true, noon); again != immediately {
		t.Errorf("the next round is due after %s", again)
	}
	if again := a.settle(t.Context(), nil, false, noon); again != 0 {
		t.Errorf("after all is written a round is due after %s", again)
	}
}

func TestDelaysEnd(t *testing.T) {
	a := testAdmitter()
	a.settle(t.Context(), []*write{
		{Candidate: candidate("reported", 0), done: true, problem: &outcome.Problem{}},
		{Candidate: candidate("refused", 1), done: true, sent: true, err: apierrors.NewForbidden(schema.GroupResource{}, "a", errors.New("x"))},
		{Candidate: candidate("failed", 2), done: true, sent: true, err: errors.New("EOF")},
		{Candidate: candidate("gone", 3), done: true, err: errors.New("EOF")},
	}, false, noon)
	observe := func(now time.Time) (delayed []types.UID, again time.Duration) {
		r := crowd(0, 0, 0)
		for _, c := range []status.Candidate{candidate("reported", 0), candidate("refused", 1), candidate("failed", 2)} {
			r.candidates[c.Instance.UID] = c
		}
		a.applyDelays(t.Context(), r, now)
		if _, blocked := r.problems["refused"]; blocked != r.delayed.Has("refused") || len(r.problems) > 1 {
			t.Errorf("blocked are %v", r.problems)
		}
		return sets.List(r.delayed), a.settle(t.Context(), nil, false, now)
	}
	if delayed, again := observe(noon); fmt.Sprint(delayed) != "[failed refused]" || again <= immediately {
		t.Errorf("%v are delayed, again after %s", delayed, again)
	}
	if delayed, again := observe(noon.Add(time.Hour)); len(delayed) != 0 || again != 0 || len(a.delays) > 0 {
		t.Errorf("%v are delayed, again after %s: %v", delayed, again, a.delays)
	}
}

// crowd is a round of many pending instances. Those beyond the limit wait, and some cannot be built.
func crowd(pending, limit, broken int) *round {
	r := &round{
		rules: admission.Rules{
			Limits: admission.Limits{All: limit}, Challenge: func(types.NamespacedName) admission.Challenge { return admission.Challenge{} },
		},
		candidates: map[types.UID]status.Candidate{}, problems: map[types.UID]*outcome.Problem{}, delayed: sets.New[types.UID](),
	}
	for n := range pending {
		c := candidate(fmt.Sprintf("%04d", n), n, func(c *status.Candidate) { c.Instance.Spec.OwnerID = fmt.Sprint(n) })
		r.candidates[c.Instance.UID] = c
		entry := testAdmitter().admissionInstance(c.Instance)
		if n < broken {
			entry.Blocked = true
			r.problems[c.Instance.UID] = &outcome.Problem{Condition: bergv1.ConditionChallengeFound, Reason: bergv1.ReasonChallengeMissing, Class: outcome.Blocked}
		}
		r.all = append(r.all, entry)
	}
	return r
}

func TestStartsComeBeforeAllOtherWrites(t *testing.T) {
	cfg := config.Challenge{MaxInstances: 1}
	for name, tc := range map[string]struct {
		r              *round
		starts, others int
		more           bool
	}{
		"few starts":          {crowd(8, 3, 2), 3, 0, true},
		"many starts":         {crowd(100, 50, 10), maxStarts, 0, true},
		"no start":            {crowd(maxReports, 1, maxReports), 0, maxReports, false},
		"many others":         {crowd(100, 1, 100), 0, maxReports, true},
		"one start too many":  {crowd(maxStarts+1, 0, 0), maxStarts, 0, true},
		"as many as may be":   {crowd(maxStarts, 0, 0), maxStarts, 0, false},
		"nothing is pending":  {crowd(0, 1, 0), 0, 0, false},
		"all wait for others": {func() *round { r := crowd(5, 1, 0); r.all[0].Started = true; return r }(), 0, 4, false},
	} {
		due, more := tc.r.writes(cfg)
		starts, others := 0, 0
		for _, w := range due {
			if w.problem != nil {
				others++
				continue
			}
			starts++
			if !w.limited && tc.r.rules.All > 0 {
				t.Errorf("%s: a start within a limit does not say so", name)
			}
		}
		if starts != tc.starts || others != tc.others || more != tc.more {
			t.Errorf("%s: %d starts, %d others, more %v; want %d, %d, %v", name, starts, others, more, tc.starts, tc.others, tc.more)
		}
	}
}

func TestWhatIsSaidOrHasJustFailedIsNotWritten(t *testing.T) {
	cfg := config.Challenge{MaxInstances: 1}
	r := crowd(4, 1, 1) // 0000 cannot be built, 0001 starts, 0002 and 0003 wait
	if due, more := r.writes(cfg); len(due) != 1 || due[0].problem != nil || !more {
		t.Errorf("%d writes, more %v", len(due), more)
	}
	r.delayed.Insert("0001")
	due, more := r.writes(cfg)
	if len(due) != 3 || more {
		t.Errorf("%d writes, more %v: a start is sent again without a pause", len(due), more)
	}
	for _, w := range due {
		w.Instance.Finalizers = []string{bergv1.Finalizer}
		status.Compute(status.Outcome{Observed: status.Observed{Candidate: w.Candidate}, Problem: w.problem}, cfg, noon)
	}
	if due, more := r.writes(cfg); len(due) != 0 || more {
		t.Errorf("%d writes, more %v: what is said is written again", len(due), more)
	}
	due[0].Instance.Finalizers = nil
	if due, more := r.writes(cfg); len(due) != 1 || more {
		t.Errorf("%d writes, more %v: a finalizer that was removed by hand is not put back", len(due), more)
	}
	due[0].Instance.Finalizers = []string{bergv1.Finalizer}
	r.delayed.Delete("0001")
	if due, more := r.writes(cfg); len(due) != 1 || due[0].problem != nil || more {
		t.Errorf("%d writes, more %v", len(due), more)
	}
}

func TestEntries(t *testing.T) {
	a := testAdmitter()
	deleted := func(i *bergv1.ChallengeInstance) { i.DeletionTimestamp = &metav1.Time{Time: noon} }
	ours := func(i *bergv1.ChallengeInstance) { i.Finalizers = []string{bergv1.Finalizer} }
	fresh := testInstance(func(i *bergv1.ChallengeInstance) {
		i.Labels = map[string]string{bergv1.LabelSource: "team-1"}
	})
	if e := a.admissionInstance(fresh); e.Started || e.Ending || e.Check || e.Challenge.String() != "berg/chall" || e.Source != "team-1" || e.Owner != fresh.Spec.OwnerID {
		t.Errorf("%+v", e)
	}
	for name, tc := range map[string]struct {
		i               *bergv1.ChallengeInstance
		started, ending bool
	}{
		"started":                   {testInstance(started, ours), true, false},
		"its finalizer was removed": {testInstance(started), true, false},
		"asked to end":              {testInstance(func(i *bergv1.ChallengeInstance) { i.Spec.TerminationReason = bergv1.TerminationAdmin }), false, true},
		"started, ending":           {testInstance(started, ours, deleted), true, true},
		"nothing of it is left":     {testInstance(started, deleted), false, true},
		"deleted before its start":  {testInstance(ours, deleted), false, true},
	} {
		if e := a.admissionInstance(tc.i); e.Started != tc.started || e.Ending != tc.ending {
			t.Errorf("%s: %+v", name, e)
		}
	}
	if !a.admissionInstance(testInstance(func(i *bergv1.ChallengeInstance) { i.Labels = map[string]string{bergv1.LabelCheck: "web"} })).Check {
		t.Error("an instance of a check is taken for a player's")
	}
}
