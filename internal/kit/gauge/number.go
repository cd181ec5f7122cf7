package gauge

import (
	"context"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// Numbers are a metric with one label, whose values the leader computes at each scrape.
type Numbers struct {
	desc *prometheus.Desc
	view atomic.Pointer[numbersView]
}

type numbersView struct {
	see     func(context.Context) (map[string]float64, error)
	elected <-chan struct{}
}

// NewNumbers returns a metric of this name, which has no value before Watch. help should say that only the leader
// reports it.
func NewNumbers(name, help, label string) *Numbers {
	return &Numbers{desc: prometheus.NewDesc(name, help, []string{label}, nil)}
}

// Watch sets the function that computes the values by the label, without a request. elected is closed once this replica
// leads: if two replicas reported them, they would count twice.
func (g *Numbers) Watch(see func(context.Context) (map[string]float64, error), elected <-chan struct{}) {
	g.view.Store(&numbersView{see, elected})
}

// Describe implements prometheus.Collector.
func (g *Numbers) Describe(ch chan<- *prometheus.Desc) { ch <- g.desc }

// Collect implements prometheus.Collector. After an error there is no value.
func (g *Numbers) Collect(ch chan<- prometheus.Metric) {
	for label, value := range g.values() {
		ch <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, value, label)
	}
}

func (g *Numbers) values() map[string]float64 {
	v := g.view.Load()
	if v == nil || !leads(v.elected) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	values, err := v.see(ctx)
	if err != nil {
		return nil
	}
	return values
}

// Number is a metric whose value the leader computes at each scrape.
type Number struct{ numbers Numbers }

// NewNumber returns a metric of this name, which has no value before Watch. help should say that only the leader
// reports it.
func NewNumber(name, help string) *Number {
	return &Number{Numbers{desc: prometheus.NewDesc(name, help, nil, nil)}}
}

// Watch sets the function that computes the value, without a request. elected is closed once this replica leads.
func (g *Number) Watch(see func(context.Context) (float64, error), elected <-chan struct{}) {
	g.numbers.Watch(func(ctx context.Context) (map[string]float64, error) {
		value, err := see(ctx)
		return map[string]float64{"": value}, err
	}, elected)
}

// Describe implements prometheus.Collector.
func (g *Number) Describe(ch chan<- *prometheus.Desc) { g.numbers.Describe(ch) }

// Collect implements prometheus.Collector. After an error there is no value.
func (g *Number) Collect(ch chan<- prometheus.Metric) {
	for _, value := range g.numbers.values() {
		ch <- prometheus.MustNewConstMetric(g.numbers.desc, prometheus.GaugeValue, value)
	}
}
