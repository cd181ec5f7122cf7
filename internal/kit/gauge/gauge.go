// Package gauge has metrics that are found out when they are asked for, so that they are
// right from the first scrape after a restart and after a change of leader: custom
// resources by their phase, and single numbers.
package gauge

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const labelPhase = "phase"

// scrapeTimeout bounds how long a scrape waits for the cache.
const scrapeTimeout = time.Second

// Observation is one custom resource in a cache.
type Observation struct {
	Phase string
	// Since when it has been in that phase.
	Since time.Time
}

// Phases are two metrics with the label phase: how many custom resources are in
// it, and for how many seconds the one that has been longest has been.
type Phases struct {
	active, longest *prometheus.Desc
	phases          []string
	see             func(context.Context, client.Reader) ([]Observation, error)
	view            atomic.Pointer[view]
}

type view struct {
	reader  client.Reader
	clock   clock.PassiveClock
	elected <-chan struct{}
}

// NewPhases returns <prefix>_active and <prefix>_longest_in_phase_seconds, which
// have a series for each of phases, also with 0, and none before Watch. see lists
// what is there; what is the plural of it, with a capital.
func NewPhases[P ~string](prefix, what string, phases []P, see func(context.Context, client.Reader) ([]Observation, error)) *Phases {
	g := &Phases{
		see: see,
		active: prometheus.NewDesc(prefix+"_active",
			what+" that exist, by phase. Only the leader reports it.", []string{labelPhase}, nil),
		longest: prometheus.NewDesc(prefix+"_longest_in_phase_seconds",
			what+": how long the one that has been longest in the phase has been in it, 0 if there is none. Only the leader reports it.",
			[]string{labelPhase}, nil),
	}
	for _, p := range phases {
		g.phases = append(g.phases, string(p))
	}
	return g
}

// Each returns a see function of NewPhases that lists the resources of one Kind, of which of says what it observes.
func Each[T client.Object](list func() client.ObjectList, of func(T) Observation) func(context.Context, client.Reader) ([]Observation, error) {
	return func(ctx context.Context, reader client.Reader) ([]Observation, error) {
		all := list()
		if err := reader.List(ctx, all, client.UnsafeDisableDeepCopy); err != nil {
			return nil, err
		}
		observations := make([]Observation, 0, meta.LenList(all))
		err := meta.EachListItem(all, func(o runtime.Object) error {
			observations = append(observations, of(o.(T)))
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

// Watch tells where to count: a cache, which costs no request. elected is closed
// once this replica leads: two that report the same would count it twice.
func (g *Phases) Watch(reader client.Reader, now clock.PassiveClock, elected <-chan struct{}) {
	g.view.Store(&view{reader, now, elected})
}

// Describe implements prometheus.Collector.
func (g *Phases) Describe(ch chan<- *prometheus.Desc) {
	ch <- g.active
	ch <- g.longest
}

// Collect implements prometheus.Collector. A cache that does not answer gives no
// number: no number is better than a wrong one.
func (g *Phases) Collect(ch chan<- prometheus.Metric) {
	v := g.view.Load()
	if v == nil || !leads(v.elected) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	observations, err := g.see(ctx, v.reader)
	if err != nil {
		return
	}
	counts, longest := make(map[string]int, len(g.phases)), make(map[string]time.Duration, len(g.phases))
	now := v.clock.Now()
	for _, s := range observations {
		counts[s.Phase]++
		longest[s.Phase] = max(longest[s.Phase], now.Sub(s.Since))
	}
	for _, phase := range g.phases {
		ch <- prometheus.MustNewConstMetric(g.active, prometheus.GaugeValue, float64(counts[phase]), phase)
		ch <- prometheus.MustNewConstMetric(g.longest, prometheus.GaugeValue, longest[phase].Seconds(), phase)
	}
}

// leads reports whether this replica does: elected is closed then.
func leads(elected <-chan struct{}) bool {
	select {
	case <-elected:
		return true
	default:
		return false
	}
}
