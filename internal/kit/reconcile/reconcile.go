package reconcile

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// Timeout bounds one reconciliation, should the API server not answer: it is the
// ReconciliationTimeout of a controller. It also bounds a decision that is based on an old observation: graceTime of package
// revisions exceeds it.
const Timeout = time.Minute

// ErrDeferred is returned by a Func that did nothing, because another event will enqueue its request.
// Such a reconciliation is not counted, and the backoff of the resource stays as it is.
var ErrDeferred = errors.New("another event will enqueue the request")

// Func makes one reconciliation. It returns after how long time alone will change something, zero
// for never, and its failure, which outcome.Backoff understands.
type Func func(context.Context, ctrl.Request) (requeueAfter time.Duration, err error)

// New returns the reconciler of a controller: it measures and counts the reconciliations of do, chooses the delays between
// them, and ends them in order when the operator stops. The function do must call backoff.ResetIfReplaced with the resource
// that it has read. The reconciler returns no errors, because the queue would choose the delay after one.
func New(now clock.PassiveClock, backoff *outcome.Backoff, metrics *Metrics, do Func) reconcile.Reconciler {
	return Drain(metrics, reconcile.Func(func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
		began := now.Now()
		requeueAfter, err := do(ctx, req)
		if errors.Is(err, ErrDeferred) {
			return ctrl.Result{}, nil
		}
		result, failed := backoff.Result(ctx, req, requeueAfter, err)
		metrics.observe(now.Since(began), failed)
		return result, nil
	}))
}

// Access is how a reconciler reaches the cluster. All fields are required.
type Access struct {
	// Client reads from the cache, which must wait for the client's own writes.
	Client client.Client
	// Writer writes what belongs to a resource.
	Writer apply.Writer
	Events events.EventRecorder
	Clock  clock.PassiveClock
	// Workers is how many resources of a Kind are reconciled at the same time.
	Workers int
}

// ControllerOptions returns the options of the controller of a Kind.
func (a Access) ControllerOptions() controller.Options {
	return controller.Options{MaxConcurrentReconciles: a.Workers, ReconciliationTimeout: Timeout}
}

// Normal records that something has happened. Its caller calls it once for each change. The text is
// cut to the maximum of an event; secrets are removed before. Events are best effort. The recorder drops them when the API server
// is busy, so nothing that must be known is only in an event.
func Normal(to events.EventRecorder, about runtime.Object, reason, action, text string) {
	to.Eventf(about, nil, corev1.EventTypeNormal, reason, action, "%s", conditions.Note(text))
}

// Warning records a problem, like Normal. conditions.Transitioned reports whether the problem is new.
func Warning(to events.EventRecorder, about runtime.Object, reason, action, text string) {
	to.Eventf(about, nil, corev1.EventTypeWarning, reason, action, "%s", conditions.Note(text))
}

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
