package gauge

import (
	"context"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// Number is a metric whose value the leader computes at each scrape.
type Number struct {
	desc *prometheus.Desc
	view atomic.Pointer[numberView]
}

type numberView struct {
	see     func(context.Context) (float64, error)
	elected <-chan struct{}
}

// NewNumber returns a metric of this name, which has no value before Watch. help should
// say that only the leader reports it.
func NewNumber(name, help string) *Number {
	return &Number{desc: prometheus.NewDesc(name, help, nil, nil)}
}

// Watch sets the function that computes the value, without a request. elected is closed once
// this replica leads.
func (g *Number) Watch(see func(context.Context) (float64, error), elected <-chan struct{}) {
	g.view.Store(&numberView{see, elected})
}

// Describe implements prometheus.Collector.
func (g *Number) Describe(ch chan<- *prometheus.Desc) { ch <- g.desc }

// Collect implements prometheus.Collector. After an error there is no value.
func (g *Number) Collect(ch chan<- prometheus.Metric) {
	v := g.view.Load()
	if v == nil || !leads(v.elected) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	if value, err := v.see(ctx); err == nil {
		ch <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, value)
	}
}
