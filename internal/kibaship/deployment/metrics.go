package deployment

import (
	"cmp"
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kit/gauge"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// The only labels are the phase, and the reason for which runs ended: never a Deployment.
var (
	runsStarted = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "kibaship_deployment_runs_started_total",
		Help: "PipelineRuns that the operator created.",
	})
	runsEnded = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kibaship_deployment_runs_ended_total",
		Help: "PipelineRuns that are over, by the reason that the condition Succeeded had.",
	}, []string{"reason"})
	runTimes = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "kibaship_deployment_run_duration_seconds",
		Help:    "Time from the start of a PipelineRun that succeeded until its end.",
		Buckets: []float64{5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600},
	})
	reconcileMetrics = reconcile.NewMetrics("kibaship_deployment",
		"Reconciliations of Deployments that failed and are tried again. A build that fails is none.")
	perPhase = gauge.NewPhases("kibaship_deployment", "Deployments", kibashipv1.DeploymentPhases, seeDeployments)
)

func init() {
	metrics.Registry.MustRegister(runsStarted, runsEnded, runTimes, reconcileMetrics, perPhase)
	for _, reason := range []string{
		kibashipv1.ReasonSucceeded, kibashipv1.ReasonRunFailed, kibashipv1.ReasonRunCancelled,
		kibashipv1.ReasonRunTimedOut, kibashipv1.ReasonPodRefused, kibashipv1.ReasonImagePullFailed,
	} {
		runsEnded.WithLabelValues(reason)
	}
}

// countRun counts a run that has just ended.
func countRun(out Outcome, run kibashipv1.PipelineRunStatus) {
	reason := kibashipv1.ReasonRunFailed
	if found := out.find(run.Name); found != nil {
		reason = found.Reason
	}
	runsEnded.WithLabelValues(reason).Inc()
	if run.Phase == kibashipv1.DeploymentSucceeded && run.StartTime != nil && run.CompletionTime != nil {
		runTimes.Observe(run.CompletionTime.Sub(run.StartTime.Time).Seconds())
	}
}

func seeDeployments(ctx context.Context, reader client.Reader) ([]gauge.Observation, error) {
	var all kibashipv1.DeploymentList
	if err := reader.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	observations := make([]gauge.Observation, len(all.Items))
	for i := range all.Items {
		d := &all.Items[i]
		observations[i] = gauge.Observation{Phase: string(cmp.Or(d.Status.Phase, kibashipv1.DeploymentInitializing)), Since: since(d)}
	}
	return observations, nil
}

// since is when a Deployment came to its phase, or shortly before: a status keeps no time for
// each.
func since(d *kibashipv1.Deployment) time.Time {
	if run := d.Status.CurrentPipelineRun; run != nil {
		switch {
		case d.Status.Phase == kibashipv1.DeploymentRunning && run.StartTime != nil:
			return run.StartTime.Time
		case run.CompletionTime != nil && (d.Status.Phase == kibashipv1.DeploymentFailed || d.Status.Phase == kibashipv1.DeploymentSucceeded):
			return run.CompletionTime.Time
		}
	}
	if c := meta.FindStatusCondition(d.Status.Conditions, kibashipv1.ConditionReady); c != nil {
		return c.LastTransitionTime.Time
	}
	return d.CreationTimestamp.Time
}
