// Package gauge counts custom resources when it is asked, so that the numbers
// are right from the first scrape after a restart.
package gauge

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Gauge is a metric with one label whose values are counted in a cache.
type Gauge struct {
	desc   *prometheus.Desc
	count  func(context.Context, client.Reader) (map[string]int, error)
	reader atomic.Pointer[client.Reader]
}

// New returns a Gauge that shows nothing before Read. count returns a number for
// each value of the label.
func New(name, help, label string, count func(context.Context, client.Reader) (map[string]int, error)) *Gauge {
	return &Gauge{desc: prometheus.NewDesc(name, help, []string{label}, nil), count: count}
}

// Read tells where to count: a cache, which costs no request.
func (g *Gauge) Read(reader client.Reader) { g.reader.Store(&reader) }

// Describe implements prometheus.Collector.
func (g *Gauge) Describe(ch chan<- *prometheus.Desc) { ch <- g.desc }

// Collect implements prometheus.Collector. A cache that is not filled yet gives
// no number: that is better than a wrong one.
func (g *Gauge) Collect(ch chan<- prometheus.Metric) {
	reader := g.reader.Load()
	if reader == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	counts, err := g.count(ctx, *reader)
	if err != nil {
		return
	}
	for value, n := range counts {
		ch <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, float64(n), value)
	}
}
