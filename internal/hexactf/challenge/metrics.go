package challenge

import (
	"cmp"
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kit/gauge"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// The only label is the state: never a challenge or a user. Only challenge_resource_status has such
// labels: see resourcestatus.go.
var (
	created = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "hexactf_challenge_total",
		Help: "Challenges that the operator started to create.",
	})
	timeToRunning = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "hexactf_challenge_time_to_running_seconds",
		Help:    "Time from the creation of a Challenge until it was Running.",
		Buckets: []float64{0.5, 1, 2, 3, 5, 8, 13, 20, 30, 60, 120, 300, 600, 1800},
	})
	lifetimes = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "hexactf_challenge_duration_seconds",
		Help:    "Time from the start of a Challenge until its deletion.",
		Buckets: []float64{60, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 86400},
	})
	expiryDelays = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "hexactf_challenge_expiry_delay_seconds",
		Help:    "Time from the expiry of a Challenge until the operator asked for its deletion.",
		Buckets: []float64{0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 600},
	})
	expirations = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "hexactf_challenge_expired_total",
		Help: "Challenges that were deleted because they had expired.",
	})
	sent = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "hexactf_messages_sent_total",
		Help: "Messages that the broker has acknowledged. A message may be counted twice.",
	})
	unsendable = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "hexactf_message_failures_total",
		Help: "Failed attempts to send a message. Each is followed by another attempt.",
	})
	lost = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "hexactf_messages_lost_total",
		Help: "Messages that were given up and may be lost: the deletion of their Challenge had waited for KAFKA_DELETE_TIMEOUT, or its outbox was full.",
	})
	messageDelays = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "hexactf_message_delay_seconds",
		Help:    "Time from a change of state until the broker acknowledged its message.",
		Buckets: []float64{0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 5, 30, 60, 300, 600, 1800},
	})
	unsent = gauge.NewNumber("hexactf_messages_unsent",
		"Messages that the broker has not acknowledged. Only the leader reports it.")
	oldestUnsent = gauge.NewNumber("hexactf_messages_oldest_unsent_seconds",
		"Age of the oldest message that the broker has not acknowledged, 0 if there is none. Only the leader reports it.")
	overdue = gauge.NewNumber("hexactf_challenge_max_overdue_seconds",
		"Time since the earliest expiry of a live Challenge, 0 if none has expired. Only the leader reports it.")
	reconcileMetrics = reconcile.NewMetrics("hexactf_challenge",
		"Reconciliations that failed and are tried again: the API server refused a request or did not answer, or there is a defect. Conflicts and mistakes in a definition do not count.")
	perState = gauge.NewPhases("hexactf_challenge", "Challenges", hexactfv1.States, gauge.Each(listChallenges, inState))
	statuses = newResourceStatus()
)

func init() {
	metrics.Registry.MustRegister(created, timeToRunning, lifetimes, expiryDelays, expirations, sent, unsendable, lost, messageDelays,
		unsent, oldestUnsent, overdue, reconcileMetrics, perState, statuses)
}

// registerGauges connects the metrics that are computed at each scrape with the cache.
func (r *Reconciler) registerGauges(ctx context.Context, mgr ctrl.Manager) error {
	reader := mgr.GetCache()
	perState.Watch(reader, r.Clock, mgr.Elected())
	overdue.Watch(r.each(reader, func(c *hexactfv1.Challenge, now time.Time, result float64) float64 {
		if c.Status.ExpiresAt == nil || c.DeletionTimestamp != nil {
			return result
		}
		return max(result, now.Sub(c.Status.ExpiresAt.Time).Seconds())
	}), mgr.Elected())
	count := r.each(reader, func(c *hexactfv1.Challenge, _ time.Time, result float64) float64 {
		return result + float64(len(r.unsent(c)))
	})
	unsent.Watch(func(ctx context.Context) (float64, error) {
		n, err := count(ctx)
		ended, _ := r.endings.unsent()
		return n + float64(ended), err
	}, mgr.Elected())
	age := r.each(reader, func(c *hexactfv1.Challenge, now time.Time, result float64) float64 {
		if left := r.unsent(c); len(left) > 0 {
			return max(result, now.Sub(left[0].Timestamp.Time).Seconds())
		}
		return result
	})
	oldestUnsent.Watch(func(ctx context.Context) (float64, error) {
		seconds, err := age(ctx)
		if n, oldest := r.endings.unsent(); n > 0 {
			seconds = max(seconds, r.Clock.Since(oldest).Seconds())
		}
		return seconds, err
	}, mgr.Elected())

	statuses.watch(reader, r.Clock, r.Config.MetricRetention, mgr.Elected())
	informer, err := reader.GetInformer(ctx, &hexactfv1.Challenge{}, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{DeleteFunc: func(o any) {
		if last, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
			o = last.Obj
		}
		if c, ok := o.(*hexactfv1.Challenge); ok {
			statuses.deleted(c, r.Clock.Now())
		}
	}})
	return err
}

// unsent are the messages of a challenge that are not acknowledged, none if there is no broker.
func (r *Reconciler) unsent(c *hexactfv1.Challenge) []hexactfv1.Message {
	known := r.deliveries.get(c)
	if known.Off {
		return nil
	}
	if c.DeletionTimestamp != nil {
		return pendingBefore(&c.Status, known.Acknowledged) // the last one waits for the end, and not for the broker
	}
	return pending(&c.Status, known.Acknowledged)
}

// each folds all challenges of a cache into a number.
func (r *Reconciler) each(reader client.Reader, fold func(c *hexactfv1.Challenge, now time.Time, result float64) float64) func(context.Context) (float64, error) {
	return func(ctx context.Context) (float64, error) {
		var challenges hexactfv1.ChallengeList
		if err := reader.List(ctx, &challenges, client.UnsafeDisableDeepCopy); err != nil {
			return 0, err
		}
		now := r.Clock.Now()
		var number float64
		for i := range challenges.Items {
			number = fold(&challenges.Items[i], now, number)
		}
		return number, nil
	}
}

// inState is for the gauge of states.
func inState(c *hexactfv1.Challenge) gauge.Observation {
	state := cmp.Or(c.Status.CurrentStatus.State, hexactfv1.StateNone)
	return gauge.Observation{Phase: string(state), Since: enteredState(c, state)}
}

// enteredState is about when a challenge entered its state, never later: a status keeps no time for each state.
func enteredState(c *hexactfv1.Challenge, state hexactfv1.State) time.Time {
	entered := c.CreationTimestamp.Time
	switch s := c.Status; {
	case state == hexactfv1.StateTerminating && c.DeletionTimestamp != nil:
		entered = c.DeletionTimestamp.Time
	case state == hexactfv1.StateRunning && s.RunningAt != nil:
		entered = s.RunningAt.Time
	case state == hexactfv1.StateError:
		// The condition that shows the problem changed last.
		for _, c := range s.Conditions {
			if c.Type != hexactfv1.ConditionNotifying && c.LastTransitionTime.After(entered) {
				entered = c.LastTransitionTime.Time
			}
		}
	case s.StartedAt != nil && state != hexactfv1.StateNone:
		entered = s.StartedAt.Time
	}
	return entered
}
