package gauge

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
)

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
