package check

import (
	"context"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/kit/gauge"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// Labels are the result of a check, its stage, and the name of a Challenge: never a flag.
var (
	results = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "berg_challengecheck_results_total",
		Help: "Checks that have ended, by their result; Interrupted for those that were broken off.",
	}, []string{"result"})
	durations = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "berg_challengecheck_duration_seconds",
		Help:    "Time that the stages of checks took: start until the instance was Running, solve while the solver ran.",
		Buckets: []float64{1, 2, 3, 5, 8, 13, 20, 30, 60, 120, 300, 600, 1800, 3600},
	}, []string{"stage"})
	reconcileMetrics = reconcile.NewMetrics("berg_challengecheck",
		"Reconciliations that failed and are tried again: the API server did not answer, or there is a bug. What checks find does not count.")
	overdue = gauge.NewNumber("berg_challengecheck_max_overdue_seconds",
		"For how long the check that has been wanted longest has been due without a result, 0 if none is; while one is being made, how long it was due when that began. Only the leader reports it.")
	perChallenge = gauge.NewNumbers("berg_challengecheck_solvable",
		"Whether the last check solved the Challenge: 1 if so, 0 if not. Only the leader reports it.", labelChallenge)
)

const (
	labelChallenge = "challenge"
	// maxChallenges bounds the label: anyone who may create ChallengeChecks chooses its values.
	// Challenges beyond it are counted as one.
	maxChallenges = 256
	// otherChallenges is no valid name, so no Challenge can have it.
	otherChallenges = "_other"
)

func init() {
	metrics.Registry.MustRegister(results, durations, reconcileMetrics, overdue, perChallenge)
}

func measure(r *bergv1.CheckResult) {
	results.WithLabelValues(string(r.Result)).Inc()
	if r.StartSeconds != nil {
		durations.WithLabelValues("start").Observe(float64(*r.StartSeconds))
	}
	if r.SolveSeconds != nil {
		durations.WithLabelValues("solve").Observe(float64(*r.SolveSeconds))
	}
}

// observeSolvable returns the value of each Challenge that was checked.
func observeSolvable(reader client.Reader) func(context.Context) (map[string]float64, error) {
	return func(ctx context.Context) (map[string]float64, error) {
		var all bergv1.ChallengeCheckList
		err := reader.List(ctx, &all, client.UnsafeDisableDeepCopy)
		return solvables(all.Items), err
	}
}

// withoutChallenge reports whether a ChallengeCheck has said that its Challenge is gone.
func withoutChallenge(c *bergv1.ChallengeCheck) bool {
	running := apimeta.FindStatusCondition(c.Status.Conditions, bergv1.CheckConditionRunning)
	return running != nil && running.Reason == bergv1.ReasonChallengeMissing
}

// solvables returns 1 for each Challenge whose checks all solved it last, else 0. A suspended
// check counts as known to be broken, and one that is gone does not count.
func solvables(all []bergv1.ChallengeCheck) map[string]float64 {
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	// The first Challenges have a series each; later ones share one.
	slices.SortStableFunc(order, func(a, b int) int {
		return all[a].CreationTimestamp.Compare(all[b].CreationTimestamp.Time)
	})
	out := map[string]float64{}
	for _, i := range order {
		last := all[i].Status.LastResult
		if last == nil || all[i].Spec.Suspend || withoutChallenge(&all[i]) {
			continue
		}
		name := all[i].Spec.ChallengeRef.Name
		if _, known := out[name]; !known && len(out) >= maxChallenges {
			name = otherChallenges
		}
		value := 0.0
		if last.Result == bergv1.CheckSolved {
			value = 1
		}
		if before, known := out[name]; known {
			value = min(value, before)
		}
		out[name] = value
	}
	return out
}
