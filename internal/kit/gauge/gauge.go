// Package gauge has metrics that are computed at each scrape, so that they are right from the
// first scrape after a restart and after a change of leader: custom resources by their
// phase, and single numbers.
package gauge

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const labelPhase = "phase"

// Observation is one custom resource in a cache.
type Observation struct {
	Phase string
	// Since is when it entered that phase.
	Since time.Time
}

// Phases are two metrics with the label phase: how many custom resources are in that phase,
// and for how many seconds the oldest of them has been in it.
type Phases struct {
	*Collector
	phases []string
	list   func(context.Context, client.Reader) ([]Observation, error)
}

// NewPhases returns <prefix>_active and <prefix>_max_in_phase_seconds, which have a series for
// each of phases, also with 0, and none before Watch. see lists the resources; help is their
// plural, with a capital.
func NewPhases[P ~string](prefix, help string, phases []P, see func(context.Context, client.Reader) ([]Observation, error)) *Phases {
	g := &Phases{
		list: see,
		Collector: NewCollector(
			prometheus.NewDesc(prefix+"_active", help+" by phase. Only the leader reports this metric.", []string{labelPhase}, nil),
			prometheus.NewDesc(prefix+"_max_in_phase_seconds",
				help+": the longest time that one has been in its current phase, in seconds; 0 if none is in the phase. Only the leader reports this metric.",
				[]string{labelPhase}, nil)),
	}
	for _, p := range phases {
		g.phases = append(g.phases, string(p))
	}
	return g
}

// Each returns a see function of NewPhases that lists the resources of one Kind and calls observe for each.
func Each[T client.Object](list func() client.ObjectList, observe func(T) Observation) func(context.Context, client.Reader) ([]Observation, error) {
	return func(ctx context.Context, reader client.Reader) ([]Observation, error) {
		all := list()
		if err := reader.List(ctx, all, client.UnsafeDisableDeepCopy); err != nil {
			return nil, err
		}
		observations := make([]Observation, 0, meta.LenList(all))
		err := meta.EachListItem(all, func(o runtime.Object) error {
			observations = append(observations, observe(o.(T)))
			return nil
		})
		return observations, err
	}
}

// InPhase is a resource that keeps no time for each phase: it counts from when its deletion was asked for, else from
// the last transition of its condition Ready, else from its creation.
func InPhase[P ~string](obj client.Object, phase P, conditions []metav1.Condition) Observation {
	since := obj.GetCreationTimestamp().Time
	if c := meta.FindStatusCondition(conditions, "Ready"); c != nil {
		since = c.LastTransitionTime.Time
	}
	if deleted := obj.GetDeletionTimestamp(); deleted != nil {
		since = deleted.Time
	}
	return Observation{Phase: string(phase), Since: since}
}

// Watch sets the cache to count in, which costs no request. elected is closed once this
// replica leads: if two replicas reported the same resources, they would count twice.
func (g *Phases) Watch(reader client.Reader, clk clock.PassiveClock, elected <-chan struct{}) {
	g.Collector.Watch(func(ctx context.Context, report Report) error {
		observations, err := g.list(ctx, reader)
		if err != nil {
			return err
		}
		counts, timeInPhase := make(map[string]int, len(g.phases)), make(map[string]time.Duration, len(g.phases))
		now := clk.Now()
		for _, s := range observations {
			counts[s.Phase]++
			timeInPhase[s.Phase] = max(timeInPhase[s.Phase], now.Sub(s.Since))
		}
		for _, phase := range g.phases {
			report(0, float64(counts[phase]), phase)
			report(1, timeInPhase[phase].Seconds(), phase)
		}
		return nil
	}, elected)
}
