package command

import (
	"errors"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
)

// running is an instance that runs what its Challenge says, changed.
func running(name string, change ...func(*bergv1.ChallengeInstance)) *bergv1.ChallengeInstance {
	i := &bergv1.ChallengeInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "berg", Name: name, UID: types.UID(name), Annotations: map[string]string{}}}
	i.Status.Phase = bergv1.PhaseRunning
	says(i, bergv1.ConditionHealthy, metav1.ConditionTrue, bergv1.ReasonReady)
	says(i, bergv1.ConditionUpToDate, metav1.ConditionTrue, bergv1.ReasonUpToDate)
	for _, c := range change {
		c(i)
	}
	return i
}

func says(i *bergv1.ChallengeInstance, condition string, status metav1.ConditionStatus, reason string) {
	i.Status.Conditions = slices.DeleteFunc(i.Status.Conditions, func(c metav1.Condition) bool { return c.Type == condition })
	i.Status.Conditions = append(i.Status.Conditions, metav1.Condition{Type: condition, Status: status, Reason: reason})
}

func stale(reason string) func(*bergv1.ChallengeInstance) {
	return func(i *bergv1.ChallengeInstance) { says(i, bergv1.ConditionUpToDate, metav1.ConditionFalse, reason) }
}

func askedFor(id string) func(*bergv1.ChallengeInstance) {
	return func(i *bergv1.ChallengeInstance) { i.Annotations[bergv1.AnnotationRollout] = id }
}

func adopted(id string) func(*bergv1.ChallengeInstance) {
	return func(i *bergv1.ChallengeInstance) {
		askedFor(id)(i)
		i.Status.ObservedRollout = id
	}
}

func unwell(reason string) func(*bergv1.ChallengeInstance) {
	return func(i *bergv1.ChallengeInstance) { says(i, bergv1.ConditionHealthy, metav1.ConditionFalse, reason) }
}

func TestARolloutTakesWhatCanBeBroughtUpToDate(t *testing.T) {
	found, refused := outdated([]*bergv1.ChallengeInstance{
		running("current"),
		running("changed", stale(bergv1.ReasonChallengeChanged)),
		running("configured", stale(bergv1.ReasonConfigurationChanged)),
		running("underway", stale(bergv1.ReasonChallengeChanged), askedFor("2")),
		running("invalid", stale(bergv1.ReasonInvalidChallenge)),
		running("stuck", stale(bergv1.ReasonNothingToRun), askedFor("2")),
	})
	var names []string
	for _, i := range found {
		names = append(names, i.Name)
	}
	if want := []string{"changed", "configured"}; !slices.Equal(names, want) {
		t.Errorf("%v, want %v", names, want)
	}
	names = nil
	for _, told := range refused {
		names = append(names, told.Name)
	}
	if want := []string{"invalid", "stuck"}; !slices.Equal(names, want) {
		t.Errorf("refused: %v, want %v", names, want)
	}
}

const (
	ours, theirs = "ours", "theirs"
	allowed      = time.Minute
)

// pacing is a rollout that has begun with some, which restart.
func pacing(names ...string) (p *pacer, now *time.Time) {
	now = &time.Time{}
	*now = noon
	p = &pacer{
		options: rolloutOptions{atOnce: 1, stopAfter: 1, settle: allowed, many: many{timeout: allowed}}, id: ours,
		now: func() time.Time { return *now }, begun: map[types.UID]*progress{}, change: make(chan struct{}, 1),
	}
	for _, name := range names {
		p.begin(types.UID(name), true)
	}
	return p, now
}

func TestWhatBecomesOfOneThatIsRolledOut(t *testing.T) {
	type seen struct {
		after  time.Duration
		change []func(*bergv1.ChallengeInstance)
	}
	see := func(after time.Duration, change ...func(*bergv1.ChallengeInstance)) seen { return seen{after, change} }
	for name, tc := range map[string]struct {
		seen  []seen
		at    time.Duration
		want  tally
		taken bool
	}{
		"nothing is known yet":   {nil, time.Second, tally{pending: 1, busy: 1}, false},
		"nothing comes":          {nil, allowed, tally{pending: 1, broken: 1, why: "not within 1m00s"}, false},
		"well":                   {[]seen{see(0, adopted(ours))}, steady, tally{}, false},
		"well, not steadily yet": {[]seen{see(0, adopted(ours))}, steady - time.Second, tally{pending: 1, busy: 1}, false},
		"not ready yet":          {[]seen{see(0, adopted(ours), unwell(bergv1.ReasonPodsNotReady))}, time.Second, tally{pending: 1, busy: 1}, false},
		"never ready":            {[]seen{see(0, adopted(ours), unwell(bergv1.ReasonPodsNotReady))}, allowed, tally{pending: 1, broken: 1, why: "not within 1m00s"}, false},
		"broken":                 {[]seen{see(0, adopted(ours), unwell("CrashLoopBackOff"))}, time.Second, tally{pending: 1, busy: 1, broken: 1, why: "CrashLoopBackOff"}, false},
		"broken, and well again": {[]seen{see(0, adopted(ours), unwell("CrashLoopBackOff")), see(time.Second, adopted(ours))}, steady + time.Second, tally{}, false},
		"became invalid":         {[]seen{see(0, askedFor(ours), stale(bergv1.ReasonInvalidChallenge))}, time.Second, tally{pending: 1, busy: 1, broken: 1, why: bergv1.ReasonInvalidChallenge}, false},
		"well and unwell by turns": {[]seen{
			see(0, adopted(ours), unwell(bergv1.ReasonPodsNotReady)), see(20*time.Second, adopted(ours)), see(22*time.Second, adopted(ours), unwell(bergv1.ReasonPodsNotReady)),
		}, allowed, tally{pending: 1, broken: 1, why: "not within 1m00s"}, false},
		"unwell after it was behind it": {[]seen{see(0, adopted(ours)), see(30*time.Second, adopted(ours), unwell(bergv1.ReasonPodsNotReady))}, allowed, tally{pending: 1, busy: 1}, false},
		"taken over":                    {[]seen{see(0, askedFor(ours), stale(bergv1.ReasonChallengeChanged)), see(time.Second, askedFor(theirs), stale(bergv1.ReasonChallengeChanged))}, time.Second, tally{}, true},
		"not marked yet":                {[]seen{see(0, askedFor(theirs), stale(bergv1.ReasonChallengeChanged))}, time.Second, tally{pending: 1, busy: 1}, false},
		"another one afterwards":        {[]seen{see(0, adopted(ours)), see(20*time.Second, askedFor(theirs))}, 20 * time.Second, tally{}, false},
		"ending":                        {[]seen{see(0, func(i *bergv1.ChallengeInstance) { i.DeletionTimestamp = &metav1.Time{Time: noon} })}, time.Second, tally{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p, now := pacing("a")
			for _, s := range tc.seen {
				*now = noon.Add(s.after)
				p.see(running("a", s.change...), false)
			}
			*now = noon.Add(tc.at)
			if got := p.count(); got != tc.want {
				t.Errorf("%+v, want %+v", got, tc.want)
			}
			if got := len(p.taken) == 1; got != tc.taken {
				t.Errorf("taken over: %v", p.taken)
			}
		})
	}
}

func TestARolloutEndsByItself(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil func(p *pacer, now *time.Time)
		code  int
	}{
		"one is never ready": {func(_ *pacer, now *time.Time) { *now = noon.Add(allowed) }, console.ExitProblem},
		"changes are not told any more": {func(p *pacer, _ *time.Time) {
			p.fail(console.Errorf(console.ExitForbidden, "you may not watch"))
		}, console.ExitForbidden},
		"no connection": {func(p *pacer, now *time.Time) {
			p.lose(errors.New("refused"))
			*now = noon.Add(allowed)
		}, console.ExitUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			p, now := pacing("a")
			_, _ = p.ready()
			tc.spoil(p, now)
			for what, wait := range map[string]error{"halt": p.halt(t.Context()), "settle": p.settle(t.Context())} {
				if got := console.Code(wait); got != tc.code {
					t.Errorf("%s: exit code %d, want %d: %v", what, got, tc.code, wait)
				}
			}
		})
	}
}

func TestOneThatHasHadItsTimeHoldsNobodyUp(t *testing.T) {
	p, now := pacing("a")
	p.options.stopAfter = 2
	_, _ = p.ready()
	*now = noon.Add(allowed)
	if err := p.halt(t.Context()); err != nil {
		t.Errorf("one of two that may be broken: %v", err)
	}
}

func TestNobodysTimeRunsWithoutAConnection(t *testing.T) {
	p, now := pacing("a")
	p.lose(errors.New("refused"))
	*now = noon.Add(time.Hour)
	if got := p.count(); got.broken != 0 {
		t.Errorf("while there is none: %+v", got)
	}
	p.lose(nil)
	if got := p.count(); got.broken != 0 {
		t.Errorf("when it is there again: %+v", got)
	}
	*now = noon.Add(time.Hour + allowed)
	if got := p.count(); got.broken != 1 {
		t.Errorf("a while later: %+v", got)
	}
}

func TestNothingIsWaitedForToWhichNothingWasWritten(t *testing.T) {
	p, _ := pacing("a")
	p.forget("a")
	if got := p.count(); got != (tally{}) {
		t.Errorf("%+v", got)
	}
}
