package challengeinstance

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// Labels are the challenge's name, bounded by the authors, and the phase: never
// an owner, an instance or a flag.
var (
	created = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "berg_challengeinstance_total",
		Help: "Instances that the operator began to build.",
	}, []string{"challenge"})
	timeToRunning = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "berg_challengeinstance_time_to_running_seconds",
		Help:    "Time from the creation of an instance until all its pods were ready.",
		Buckets: []float64{0.5, 1, 2, 3, 5, 8, 13, 20, 30, 60, 120, 300, 600},
	}, []string{"challenge"})
	lifetimes = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "berg_challengeinstance_duration_seconds",
		Help:    "Time from the start of an instance until its namespace was gone.",
		Buckets: []float64{60, 300, 600, 1800, 3600, 7200, 14400, 28800, 86400},
	})
	reconciles = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "berg_challengeinstance_reconcile_duration_seconds",
		Help:    "Time that one reconciliation took.",
		Buckets: prometheus.ExponentialBuckets(0.0005, 2, 15),
	})
	reconcileErrors = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "berg_challengeinstance_reconcile_errors_total",
		Help: "Reconciliations that failed and are tried again.",
	})
	timeouts = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "berg_challengeinstance_timeouts_total",
		Help: "Instances that were ended because their time was over.",
	})
	active = &activeGauge{desc: prometheus.NewDesc(
		"berg_challengeinstance_active",
		"Instances that exist, by phase.",
		[]string{"phase"}, nil,
	)}
)

func init() {
	metrics.Registry.MustRegister(created, timeToRunning, lifetimes, reconciles, reconcileErrors, timeouts, active)
}

func observeReconcile(took time.Duration, err error) {
	reconciles.Observe(took.Seconds())
	if err != nil {
		reconcileErrors.Inc()
	}
}

// activeGauge counts the instances in the cache when it is asked, so that it is
// right from the first scrape after a restart.
type activeGauge struct {
	desc   *prometheus.Desc
	reader atomic.Pointer[client.Reader]
}

func (g *activeGauge) Describe(ch chan<- *prometheus.Desc) { ch <- g.desc }

func (g *activeGauge) Collect(ch chan<- prometheus.Metric) {
	reader := g.reader.Load()
	if reader == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var instances bergv1.ChallengeInstanceList
	if err := (*reader).List(ctx, &instances, client.UnsafeDisableDeepCopy); err != nil {
		return // the cache is not filled yet: no number is better than a wrong one
	}
	counts := make(map[bergv1.Phase]int, len(bergv1.Phases))
	for i := range instances.Items {
		phase := instances.Items[i].Status.Phase
		if phase == "" {
			phase = bergv1.PhasePending
		}
		counts[phase]++
	}
	for _, phase := range bergv1.Phases {
		ch <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, float64(counts[phase]), string(phase))
	}
}
