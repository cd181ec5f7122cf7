// Package gauge has metrics that are computed at each scrape, so that they are right from the
// first scrape after a restart and after a change of leader: custom resources by their
// phase, and single numbers.
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

// scrapeTimeout bounds how long a scrape waits for the cache.
const scrapeTimeout = time.Second

// Report adds a value to a scrape. metric is the index of its description.
type Report func(metric int, value float64, labels ...string)

// Collector is a prometheus.Collector whose values the leader computes at each scrape, so that they are right after a
// restart.
type Collector struct {
	descs []*prometheus.Desc
	view  atomic.Pointer[view]
}

type view struct {
	see     func(context.Context, Report) error
	elected <-chan struct{}
}

// NewCollector returns a collector without values.
func NewCollector(descs ...*prometheus.Desc) *Collector { return &Collector{descs: descs} }

// Watch sets the function that reports the values, without a request. After an error it must not have reported any.
// elected is closed once this replica leads: if two replicas reported them, they would count twice.
func (c *Collector) Watch(see func(context.Context, Report) error, elected <-chan struct{}) {
	c.view.Store(&view{see, elected})
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range c.descs {
		ch <- desc
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	v := c.view.Load()
	if v == nil {
		return
	}
	select {
	case <-v.elected:
	default:
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	_ = v.see(ctx, func(metric int, value float64, labels ...string) { // after an error the scrape has no value
		ch <- prometheus.MustNewConstMetric(c.descs[metric], prometheus.GaugeValue, value, labels...)
	})
}

// Numbers are a metric with one label, whose values the leader computes at each scrape.
type Numbers struct{ *Collector }

// NewNumbers returns a metric of this name, which has no value before Watch. help should say that only the leader
// reports it.
func NewNumbers(name, help, label string) *Numbers {
	return &Numbers{NewCollector(prometheus.NewDesc(name, help, []string{label}, nil))}
}

// Watch sets the function that computes the values by the label, without a request. elected is closed once this replica
// leads: if two replicas reported them, they would count twice.
func (g *Numbers) Watch(see func(context.Context) (map[string]float64, error), elected <-chan struct{}) {
	g.Collector.Watch(func(ctx context.Context, report Report) error {
		values, err := see(ctx)
		if err != nil {
			return err
		}
		for label, value := range values {
			report(0, value, label)
		}
		return nil
	}, elected)
}

// Number is a metric whose value the leader computes at each scrape.
type Number struct{ *Collector }

// NewNumber returns a metric of this name, which has no value before Watch. help should say that only the leader
// reports it.
func NewNumber(name, help string) *Number {
	return &Number{NewCollector(prometheus.NewDesc(name, help, nil, nil))}
}

// Watch sets the function that computes the value, without a request. elected is closed once this replica leads.
func (g *Number) Watch(see func(context.Context) (float64, error), elected <-chan struct{}) {
	g.Collector.Watch(func(ctx context.Context, report Report) error {
		value, err := see(ctx)
		if err == nil {
			report(0, value)
		}
		return err
	}, elected)
}
