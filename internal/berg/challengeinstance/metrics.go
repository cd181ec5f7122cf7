package challengeinstance

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/gauge"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// Labels are the phase and the name of an existing Challenge: never an owner, an instance or a
// flag.
var (
	created = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "berg_challengeinstance_total",
		Help: "Instances that the operator started to build.",
	}, []string{labelChallenge})
	timeToRunning = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "berg_challengeinstance_time_to_running_seconds",
		Help:    "Time from the creation of an instance until all its pods were ready.",
		Buckets: []float64{0.5, 1, 2, 3, 5, 8, 13, 20, 30, 60, 120, 300, 600, 1800},
	}, []string{labelChallenge})
	lifetimes = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "berg_challengeinstance_duration_seconds",
		Help:    "Time from the start of an instance until its namespace was gone.",
		Buckets: []float64{60, 300, 600, 1800, 3600, 7200, 14400, 28800, 86400},
	})
	expiryDelays = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "berg_challengeinstance_expiry_delay_seconds",
		Help:    "Time from the expiry of an instance until the operator asked for its deletion.",
		Buckets: []float64{0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 600},
	})
	reconcileMetrics = reconcile.NewMetrics("berg_challengeinstance",
		"Reconciliations that failed and are retried: the API server rejected a request or did not answer, or there is a bug. Conflicts and errors in a Challenge do not count.")
	timeouts = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "berg_challengeinstance_timeouts_total",
		Help: "Instances that were deleted because they had expired.",
	})
	// startStages covers all Challenges together, so that the number of series is bounded.
	startStages = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "berg_challengeinstance_start_stage_seconds",
		Help:    "Duration of the stages of a start, for instances whose pods were all ready.",
		Buckets: []float64{0.05, 0.1, 0.25, 0.5, 1, 2, 3, 5, 8, 13, 20, 30, 60, 120, 300, 600},
	}, []string{"stage"})
	policiesInUse = newPolicyKinds()
	perChallenge  = &challengeSeries{}
	overdue       = gauge.NewNumber("berg_challengeinstance_max_overdue_seconds",
		"Seconds since the expiry of the most overdue live instance, 0 if there is none. Reported by the leader only.")
	perPhase = gauge.NewPhases("berg_challengeinstance", "Instances", bergv1.Phases, observeInstances)
)

const (
	labelChallenge = "challenge"
	// maxChallenges bounds the label: users who may create Challenges choose its values. With 18 series per Challenge, one
	// scrape carries that many easily.
	maxChallenges = 256
	// otherChallenges stands for Challenges beyond the limit and for deleted ones. It is not a valid name of a Challenge.
	otherChallenges = "_other"
	// scrapeTimeout bounds how long a scrape waits for the cache.
	scrapeTimeout = time.Second
)

func init() {
	metrics.Registry.MustRegister(policiesInUse, perChallenge, perPhase, orphanedNamespaces, overdue, lifetimes, expiryDelays, reconcileMetrics, timeouts, startStages)
}

// policyKindsInUse shows which kinds of network policy isolate instances. There is no value
// before the first reconciliation.
type policyKindsInUse struct {
	*prometheus.GaugeVec
	last atomic.Value
}

func newPolicyKinds() *policyKindsInUse {
	return &policyKindsInUse{GaugeVec: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "berg_challengeinstance_network_policy",
		Help: "Whether instances are isolated by network policies of a kind: 1 if so.",
	}, []string{"kind"})}
}

// set reports whether the value changed.
func (p *policyKindsInUse) set(now config.NetworkPolicy) bool {
	if p.last.Swap(now) == any(now) {
		return false
	}
	for kind, used := range map[config.NetworkPolicy]bool{config.NetworkPolicyCilium: now.Cilium(), config.NetworkPolicyKubernetes: now.Kubernetes()} {
		value := 0.0
		if used {
			value = 1
		}
		p.WithLabelValues(string(kind)).Set(value)
	}
	return true
}

// challengeSeries are the metrics with the name of a Challenge as label. They are removed when
// the Challenge is gone.
type challengeSeries struct {
	reader atomic.Pointer[client.Reader]
	mu     sync.Mutex
	names  map[string]struct{}
}

// label returns the label value for an instance of a Challenge. exists says whether the
// Challenge exists: the name in an instance is user input.
func (s *challengeSeries) label(name string, exists bool) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.names[name]; known {
		return name
	}
	if !exists || len(s.names) >= maxChallenges {
		return otherChallenges
	}
	if s.names == nil {
		s.names = make(map[string]struct{})
	}
	s.names[name] = struct{}{}
	return name
}

// retain removes the series of every Challenge that is not in exist.
func (s *challengeSeries) retain(exist map[string]struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.names {
		if _, ok := exist[name]; !ok {
			delete(s.names, name)
			created.DeleteLabelValues(name)
			timeToRunning.DeleteLabelValues(name)
		}
	}
}

func (s *challengeSeries) Describe(ch chan<- *prometheus.Desc) {
	created.Describe(ch)
	timeToRunning.Describe(ch)
}

// Collect removes the series of deleted Challenges before it collects. If the cache does not answer in time, the scrape
// shows all series.
func (s *challengeSeries) Collect(ch chan<- prometheus.Metric) {
	if reader := s.reader.Load(); reader != nil {
		ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
		defer cancel()
		var challenges bergv1.ChallengeList
		if err := (*reader).List(ctx, &challenges, client.UnsafeDisableDeepCopy); err == nil {
			exist := make(map[string]struct{}, len(challenges.Items))
			for i := range challenges.Items {
				exist[challenges.Items[i].Name] = struct{}{}
			}
			s.retain(exist)
		}
	}
	created.Collect(ch)
	timeToRunning.Collect(ch)
}

// observeOverdue returns the time since the expiry of the most overdue live instance. The
// delays of deleted instances do not show one that cannot be deleted.
func observeOverdue(reader client.Reader, now clock.PassiveClock) func(context.Context) (seconds float64, err error) {
	return func(ctx context.Context) (float64, error) {
		var instances bergv1.ChallengeInstanceList
		if err := reader.List(ctx, &instances, client.UnsafeDisableDeepCopy); err != nil {
			return 0, err
		}
		return maxOverdue(instances.Items, now.Now()).Seconds(), nil
	}
}

func maxOverdue(instances []bergv1.ChallengeInstance, now time.Time) (oldest time.Duration) {
	for i := range instances {
		if expiry := instances[i].Status.ExpiresAt; expiry != nil && instances[i].DeletionTimestamp == nil {
			oldest = max(oldest, now.Sub(expiry.Time))
		}
	}
	return oldest
}

func observeInstances(ctx context.Context, reader client.Reader) ([]gauge.Observation, error) {
	var instances bergv1.ChallengeInstanceList
	if err := reader.List(ctx, &instances, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	observations := make([]gauge.Observation, 0, len(instances.Items))
	for i := range instances.Items {
		observations = append(observations, newObservation(&instances.Items[i]))
	}
	return observations, nil
}

func newObservation(instance *bergv1.ChallengeInstance) gauge.Observation {
	return gauge.Observation{Phase: string(cmp.Or(instance.Status.Phase, bergv1.PhasePending)), Since: enteredPhase(instance)}
}

// enteredPhase returns when an instance entered its phase, or an earlier time: the status has no time for every phase.
func enteredPhase(instance *bergv1.ChallengeInstance) time.Time {
	entered := instance.CreationTimestamp.Time
	switch s := instance.Status; {
	case s.Phase == bergv1.PhaseTerminated && s.TerminatedAt != nil:
		entered = s.TerminatedAt.Time
	case s.Phase == bergv1.PhaseTerminating && instance.DeletionTimestamp != nil:
		entered = instance.DeletionTimestamp.Time
	case s.Phase == bergv1.PhaseRunning && s.ReadyAt != nil:
		entered = s.ReadyAt.Time
	case s.Phase == bergv1.PhaseFailed:
		// The last change of a condition made it fail.
		for _, c := range s.Conditions {
			if c.LastTransitionTime.After(entered) {
				entered = c.LastTransitionTime.Time
			}
		}
	case s.StartedAt != nil && s.Phase != bergv1.PhasePending:
		entered = s.StartedAt.Time
	}
	return entered
}

var orphanedNamespaces = gauge.NewNumber("berg_challengeinstance_orphaned_namespaces",
	"Namespaces whose instance no longer exists. Reported by the leader only.")
