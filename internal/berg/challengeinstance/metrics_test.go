package challengeinstance

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

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

	s.keep(map[string]struct{}{"challenge-1": {}})
	if got := s.label("challenge-0", false); got != otherChallenges {
		t.Errorf("a Challenge that is gone keeps the label %q", got)
	}
	if got := s.label("challenge-9999", true); got != "challenge-9999" {
		t.Errorf("a Challenge that takes a free place has the label %q", got)
	}
}

func TestSeriesOfAChallengeGoWithIt(t *testing.T) {
	s := &challengeSeries{}
	for _, name := range []string{"stays", "goes"} {
		created.WithLabelValues(s.label(name, true)).Inc()
		timeToRunning.WithLabelValues(s.label(name, true)).Observe(1)
	}
	t.Cleanup(func() { s.keep(nil) })
	s.keep(map[string]struct{}{"stays": {}})
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

func TestSummarize(t *testing.T) {
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
	counts, longest := summarize([]bergv1.ChallengeInstance{
		with("", func(i *bergv1.ChallengeInstance) { i.Status.StartedAt = nil }), // not yet seen
		with(bergv1.PhasePending, func(i *bergv1.ChallengeInstance) { i.CreationTimestamp = *ago(time.Hour) }),
		with(bergv1.PhaseStarting, nil),
		with(bergv1.PhaseRunning, func(i *bergv1.ChallengeInstance) { i.Status.ReadyAt = ago(2 * time.Hour) }),
		with(bergv1.PhaseRunning, func(i *bergv1.ChallengeInstance) { i.Status.ReadyAt = ago(3 * time.Hour) }),
		with(bergv1.PhaseTerminating, func(i *bergv1.ChallengeInstance) { i.DeletionTimestamp = ago(time.Minute) }),
		with(bergv1.PhaseFailed, func(i *bergv1.ChallengeInstance) {
			i.Status.StartedAt = nil
			i.Status.Conditions = []metav1.Condition{{LastTransitionTime: *ago(5 * time.Minute)}, {LastTransitionTime: *ago(4 * time.Minute)}}
		}),
	}, noon)
	for _, tc := range []struct {
		phase   bergv1.Phase
		count   int
		longest time.Duration
	}{
		{bergv1.PhasePending, 2, 10 * time.Hour},
		{bergv1.PhaseCreating, 0, 0},
		{bergv1.PhaseStarting, 1, 9 * time.Hour},
		{bergv1.PhaseRunning, 2, 3 * time.Hour},
		{bergv1.PhaseTerminating, 1, time.Minute},
		{bergv1.PhaseTerminated, 0, 0},
		{bergv1.PhaseFailed, 1, 4 * time.Minute},
	} {
		if counts[tc.phase] != tc.count || longest[tc.phase] != tc.longest {
			t.Errorf("%s: %d instances for at most %s, want %d for %s", tc.phase, counts[tc.phase], longest[tc.phase], tc.count, tc.longest)
		}
	}
}
