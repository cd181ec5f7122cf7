package gauge

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

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
