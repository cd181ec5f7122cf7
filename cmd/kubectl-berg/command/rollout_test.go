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

// running is an instance that is up to date, after some changes.
func running(name string, change ...func(*bergv1.ChallengeInstance)) *bergv1.ChallengeInstance {
	i := &bergv1.ChallengeInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "berg", Name: name, UID: types.UID(name), Annotations: map[string]string{}}}
	i.Status.Phase = bergv1.PhaseRunning
	setCondition(i, bergv1.ConditionHealthy, metav1.ConditionTrue, bergv1.ReasonReady)
	setCondition(i, bergv1.ConditionUpToDate, metav1.ConditionTrue, bergv1.ReasonUpToDate)
	for _, c := range change {
		c(i)
	}
	return i
}

func setCondition(i *bergv1.ChallengeInstance, condition string, status metav1.ConditionStatus, reason string) {
	i.Status.Conditions = slices.DeleteFunc(i.Status.Conditions, func(c metav1.Condition) bool { return c.Type == condition })
	i.Status.Conditions = append(i.Status.Conditions, metav1.Condition{Type: condition, Status: status, Reason: reason})
}

func outdatedFor(reason string) func(*bergv1.ChallengeInstance) {
	return func(i *bergv1.ChallengeInstance) {
		setCondition(i, bergv1.ConditionUpToDate, metav1.ConditionFalse, reason)
	}
}

func rolloutRequested(id string) func(*bergv1.ChallengeInstance) {
	return func(i *bergv1.ChallengeInstance) { i.Annotations[bergv1.AnnotationRollout] = id }
}

func adopted(id string) func(*bergv1.ChallengeInstance) {
	return func(i *bergv1.ChallengeInstance) {
		rolloutRequested(id)(i)
		i.Status.ObservedRollout = id
	}
}

func unhealthy(reason string) func(*bergv1.ChallengeInstance) {
	return func(i *bergv1.ChallengeInstance) {
		setCondition(i, bergv1.ConditionHealthy, metav1.ConditionFalse, reason)
	}
}

func TestRolloutSelectsOutdatedInstances(t *testing.T) {
	found, refused := outdated([]*bergv1.ChallengeInstance{
		running("current"),
		running("changed", outdatedFor(bergv1.ReasonChallengeChanged)),
		running("configured", outdatedFor(bergv1.ReasonConfigurationChanged)),
		running("image", outdatedFor(bergv1.ReasonImageChanged)),
		running("isInProgress", outdatedFor(bergv1.ReasonChallengeChanged), rolloutRequested("2")),
		running("invalid", outdatedFor(bergv1.ReasonInvalidChallenge)),
		running("stuck", outdatedFor(bergv1.ReasonNothingToRun), rolloutRequested("2")),
	})
	var names []string
	for _, i := range found {
		names = append(names, i.Name)
	}
	if want := []string{"changed", "configured", "image"}; !slices.Equal(names, want) {
		t.Errorf("%v, want %v", names, want)
	}
	names = nil
	for _, given := range refused {
		names = append(names, given.Name)
	}
	if want := []string{"invalid", "stuck"}; !slices.Equal(names, want) {
		t.Errorf("refused: %v, want %v", names, want)
	}
}

const (
	ours, theirs = "ours", "theirs"
	allowed      = time.Minute
)

// pacing is a rollout that has begun with some instances, whose pods restart.
func pacing(names ...string) (p *pacer, now *time.Time) {
	now = &time.Time{}
	*now = noon
	p = &pacer{
		options: rolloutOptions{maxUnavailable: 1, stopAfter: 1, readyTimeout: allowed, bulkOptions: bulkOptions{timeout: allowed}}, id: ours,
		now: func() time.Time { return *now }, started: map[types.UID]*progress{}, change: make(chan struct{}, 1),
	}
	for _, name := range names {
		p.begin(types.UID(name), true)
	}
	return p, now
}

func TestRolloutProgressOfAnInstance(t *testing.T) {
	type seen struct {
		after  time.Duration
		change []func(*bergv1.ChallengeInstance)
	}
	see := func(after time.Duration, change ...func(*bergv1.ChallengeInstance)) seen { return seen{after, change} }
	for name, tc := range map[string]struct {
		seen       []seen
		at         time.Duration
		want       counts
		superseded bool
	}{
		"no change yet":        {nil, time.Second, counts{pending: 1, busy: 1}, false},
		"no change in time":    {nil, allowed, counts{pending: 1, broken: 1, reason: "not healthy within 1m00s"}, false},
		"healthy":              {[]seen{see(0, adopted(ours))}, minReadyTime, counts{}, false},
		"healthy only just":    {[]seen{see(0, adopted(ours))}, minReadyTime - time.Second, counts{pending: 1, busy: 1}, false},
		"not ready yet":        {[]seen{see(0, adopted(ours), unhealthy(bergv1.ReasonPodsNotReady))}, time.Second, counts{pending: 1, busy: 1}, false},
		"never ready":          {[]seen{see(0, adopted(ours), unhealthy(bergv1.ReasonPodsNotReady))}, allowed, counts{pending: 1, broken: 1, reason: "not healthy within 1m00s"}, false},
		"broken":               {[]seen{see(0, adopted(ours), unhealthy("CrashLoopBackOff"))}, time.Second, counts{pending: 1, busy: 1, broken: 1, reason: "CrashLoopBackOff"}, false},
		"broken, then healthy": {[]seen{see(0, adopted(ours), unhealthy("CrashLoopBackOff")), see(time.Second, adopted(ours))}, minReadyTime + time.Second, counts{}, false},
		"became invalid":       {[]seen{see(0, rolloutRequested(ours), outdatedFor(bergv1.ReasonInvalidChallenge))}, time.Second, counts{pending: 1, busy: 1, broken: 1, reason: bergv1.ReasonInvalidChallenge}, false},
		"healthy and unhealthy in turn": {[]seen{
			see(0, adopted(ours), unhealthy(bergv1.ReasonPodsNotReady)), see(20*time.Second, adopted(ours)), see(22*time.Second, adopted(ours), unhealthy(bergv1.ReasonPodsNotReady)),
		}, allowed, counts{pending: 1, broken: 1, reason: "not healthy within 1m00s"}, false},
		"unhealthy after completion": {[]seen{see(0, adopted(ours)), see(30*time.Second, adopted(ours), unhealthy(bergv1.ReasonPodsNotReady))}, allowed, counts{pending: 1, busy: 1}, false},
		"superseded":                 {[]seen{see(0, rolloutRequested(ours), outdatedFor(bergv1.ReasonChallengeChanged)), see(time.Second, rolloutRequested(theirs), outdatedFor(bergv1.ReasonChallengeChanged))}, time.Second, counts{}, true},
		"not annotated yet":          {[]seen{see(0, rolloutRequested(theirs), outdatedFor(bergv1.ReasonChallengeChanged))}, time.Second, counts{pending: 1, busy: 1}, false},
		"another rollout later":      {[]seen{see(0, adopted(ours)), see(20*time.Second, rolloutRequested(theirs))}, 20 * time.Second, counts{}, false},
		"terminating":                {[]seen{see(0, func(i *bergv1.ChallengeInstance) { i.DeletionTimestamp = &metav1.Time{Time: noon} })}, time.Second, counts{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p, now := pacing("a")
			for _, s := range tc.seen {
				*now = noon.Add(s.after)
				p.observe(running("a", s.change...), false)
			}
			*now = noon.Add(tc.at)
			if got := p.count(); got != tc.want {
				t.Errorf("%+v, want %+v", got, tc.want)
			}
			if got := len(p.superseded) == 1; got != tc.superseded {
				t.Errorf("superseded: %v", p.superseded)
			}
		})
	}
}

func TestRolloutStops(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil func(p *pacer, now *time.Time)
		code  int
	}{
		"an instance is never ready": {func(_ *pacer, now *time.Time) { *now = noon.Add(allowed) }, console.ExitProblem},
		"changes are no longer received": {func(p *pacer, _ *time.Time) {
			p.fail(console.Errorf(console.ExitForbidden, "you may not watch"))
		}, console.ExitForbidden},
		"no connection": {func(p *pacer, now *time.Time) {
			p.setConnection(errors.New("refused"))
			*now = noon.Add(allowed)
		}, console.ExitUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			p, now := pacing("a")
			_, _ = p.ready()
			tc.spoil(p, now)
			for what, wait := range map[string]error{"halt": p.waitForSlot(t.Context()), "settle": p.waitForAll(t.Context())} {
				if got := console.Code(wait); got != tc.code {
					t.Errorf("%s: exit code %d, want %d: %v", what, got, tc.code, wait)
				}
			}
		})
	}
}

func TestTimedOutInstanceFreesItsSlot(t *testing.T) {
	p, now := pacing("a")
	p.options.stopAfter = 2
	_, _ = p.ready()
	*now = noon.Add(allowed)
	if err := p.waitForSlot(t.Context()); err != nil {
		t.Errorf("one of two allowed failures: %v", err)
	}
}

func TestReadyTimeoutPausesWithoutConnection(t *testing.T) {
	p, now := pacing("a")
	p.setConnection(errors.New("refused"))
	*now = noon.Add(time.Hour)
	if got := p.count(); got.broken != 0 {
		t.Errorf("without a connection: %+v", got)
	}
	p.setConnection(nil)
	if got := p.count(); got.broken != 0 {
		t.Errorf("when the connection is back: %+v", got)
	}
	*now = noon.Add(time.Hour + allowed)
	if got := p.count(); got.broken != 1 {
		t.Errorf("after the timeout: %+v", got)
	}
}

func TestForgottenInstanceIsNotAwaited(t *testing.T) {
	p, _ := pacing("a")
	p.forget("a")
	if got := p.count(); got != (counts{}) {
		t.Errorf("%+v", got)
	}
}
