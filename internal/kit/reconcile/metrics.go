package reconcile

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are how long the reconciliations of the controllers of a kind take and how many fail.
// They are a collector, to be registered once.
type Metrics struct {
	durations prometheus.Histogram
	errors    prometheus.Counter
}

// NewMetrics returns <prefix>_reconcile_duration_seconds and
// <prefix>_reconcile_errors_total. failures is the help text of the latter: it says what
// counts as a failure of this kind.
func NewMetrics(prefix, failures string) *Metrics {
	return &Metrics{
		durations: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    prefix + "_reconcile_duration_seconds",
			Help:    "Time that one reconciliation took.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 15),
		}),
		errors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: prefix + "_reconcile_errors_total",
			Help: failures,
		}),
	}
}

// Failed counts a failure. New and Drain call it by themselves.
func (m *Metrics) Failed() { m.errors.Inc() }

// observe counts a reconciliation; failed is nil if it did not fail.
func (m *Metrics) observe(took time.Duration, failed error) {
	m.durations.Observe(took.Seconds())
	if failed != nil {
		m.Failed()
	}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	m.durations.Describe(ch)
	m.errors.Describe(ch)
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	m.durations.Collect(ch)
	m.errors.Collect(ch)
}

// ElapsedSinceCreation estimates how long a resource has existed, if the operator began to work on it
// at start. The API server keeps times in whole seconds, of its own clock. created is its metadata.creationTimestamp, start and now are times of the
// operator's clock.
//
// The time since start is measured. The resource was created at an unknown moment of the
// second in created, and not after start. If start is in the same second, the operator has
// seen the resource immediately, and nothing is added. Otherwise half a second is subtracted
// for the unknown part, which is right on average. The clocks may disagree: no part is
// negative.
func ElapsedSinceCreation(created, start, now time.Time) time.Duration {
	waited := start.Sub(created)
	if waited < time.Second {
		waited = 0
	} else {
		waited -= time.Second / 2
	}
	return waited + Elapsed(start, now)
}

// Elapsed is the time since start. The clocks of two replicas may disagree: it is never
// negative.
func Elapsed(start, now time.Time) time.Duration { return max(0, now.Sub(start)) }
