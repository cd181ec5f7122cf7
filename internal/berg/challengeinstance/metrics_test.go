package challengeinstance

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

func TestMaxOverdue(t *testing.T) {
	expires := func(after time.Duration) func(*bergv1.ChallengeInstance) {
		return func(i *bergv1.ChallengeInstance) { i.Status.ExpiresAt = &metav1.Time{Time: noon.Add(after)} }
	}
	deleted := func(i *bergv1.ChallengeInstance) { i.DeletionTimestamp = &metav1.Time{Time: noon} }
	for name, tc := range map[string]struct {
		instances []*bergv1.ChallengeInstance
		want      time.Duration
	}{
		"none":               {nil, 0},
		"waiting":            {[]*bergv1.ChallengeInstance{testInstance()}, 0},
		"in time":            {[]*bergv1.ChallengeInstance{testInstance(expires(time.Hour))}, 0},
		"ended in time":      {[]*bergv1.ChallengeInstance{testInstance(expires(-time.Hour), deleted)}, 0},
		"the longest counts": {[]*bergv1.ChallengeInstance{testInstance(expires(-time.Minute)), testInstance(expires(-time.Hour)), testInstance(expires(time.Hour))}, time.Hour},
	} {
		var all []bergv1.ChallengeInstance
		for _, i := range tc.instances {
			all = append(all, *i)
		}
		if got := maxOverdue(all, noon); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

func TestChallengeLabelIsBounded(t *testing.T) {
	s := &challengeSeries{}
	if got := s.label("no-such-challenge", false); got != otherChallenges {
		t.Errorf("a Challenge that does not exist has the label %q", got)
	}
	values := map[string]bool{}
	for n := range 10_000 {
		values[s.label(fmt.Sprintf("challenge-%d", n), true)] = true
	}
	if len(values) != maxChallenges+1 || !values[otherChallenges] {
		t.Errorf("10,000 Challenges have %d labels, want %d and %s", len(values), maxChallenges, otherChallenges)
	}
	if got := s.label("challenge-0", false); got != "challenge-0" {
		t.Errorf("a known Challenge has the label %q", got)
	}

	s.retain(map[string]struct{}{"challenge-1": {}})
	if got := s.label("challenge-0", false); got != otherChallenges {
		t.Errorf("a Challenge that is gone keeps the label %q", got)
	}
	if got := s.label("challenge-9999", true); got != "challenge-9999" {
		t.Errorf("a Challenge that takes a free place has the label %q", got)
	}
}

func TestSeriesAreRemovedWithTheirChallenge(t *testing.T) {
	s := &challengeSeries{}
	for _, name := range []string{"stays", "goes"} {
		created.WithLabelValues(s.label(name, true)).Inc()
		timeToRunning.WithLabelValues(s.label(name, true)).Observe(1)
	}
	t.Cleanup(func() { s.retain(nil) })
	s.retain(map[string]struct{}{"stays": {}})
	// Were a series still there, it could be deleted again.
	if created.DeleteLabelValues("goes") || timeToRunning.DeleteLabelValues("goes") {
		t.Error("the Challenge that is gone still has series")
	}
	if n := count(created); n != 1 {
		t.Errorf("%d series are left, want the one of the Challenge that stays", n)
	}
}

func count(c prometheus.Collector) int {
	ch := make(chan prometheus.Metric, 100)
	c.Collect(ch)
	return len(ch)
}

func TestEnteredPhase(t *testing.T) {
	ago := func(d time.Duration) *metav1.Time { return &metav1.Time{Time: noon.Add(-d)} }
	with := func(phase bergv1.Phase, modify func(*bergv1.ChallengeInstance)) bergv1.ChallengeInstance {
		i := bergv1.ChallengeInstance{}
		i.CreationTimestamp = *ago(10 * time.Hour)
		i.Status.StartedAt = ago(9 * time.Hour)
		i.Status.Phase = phase
		if modify != nil {
			modify(&i)
		}
		return i
	}
	for _, tc := range []struct {
		instance bergv1.ChallengeInstance
		phase    bergv1.Phase
		since    time.Duration
	}{
		{with("", func(i *bergv1.ChallengeInstance) { i.Status.StartedAt = nil }), bergv1.PhasePending, 10 * time.Hour}, // not yet seen
		{with(bergv1.PhasePending, func(i *bergv1.ChallengeInstance) { i.CreationTimestamp = *ago(time.Hour) }), bergv1.PhasePending, time.Hour},
		{with(bergv1.PhaseStarting, nil), bergv1.PhaseStarting, 9 * time.Hour},
		{with(bergv1.PhaseRunning, func(i *bergv1.ChallengeInstance) { i.Status.ReadyAt = ago(2 * time.Hour) }), bergv1.PhaseRunning, 2 * time.Hour},
		{with(bergv1.PhaseTerminating, func(i *bergv1.ChallengeInstance) { i.DeletionTimestamp = ago(time.Minute) }), bergv1.PhaseTerminating, time.Minute},
		{with(bergv1.PhaseTerminated, func(i *bergv1.ChallengeInstance) { i.Status.TerminatedAt = ago(time.Second) }), bergv1.PhaseTerminated, time.Second},
		{with(bergv1.PhaseFailed, func(i *bergv1.ChallengeInstance) {
			i.Status.StartedAt = nil
			i.Status.Conditions = []metav1.Condition{{LastTransitionTime: *ago(5 * time.Minute)}, {LastTransitionTime: *ago(4 * time.Minute)}}
		}), bergv1.PhaseFailed, 4 * time.Minute},
	} {
		if got := newObservation(&tc.instance); got.Phase != string(tc.phase) || noon.Sub(got.Since) != tc.since {
			t.Errorf("%s: seen as %s for %s, want %s", tc.phase, got.Phase, noon.Sub(got.Since), tc.since)
		}
	}
}
