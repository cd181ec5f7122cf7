package deployment

import (
	"cmp"

	"github.com/prometheus/client_golang/prometheus"
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
	buildSeconds = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "kibaship_deployment_build_seconds_total",
		Help: "Seconds from start to end of all builds that have ended.",
	})
	imageBytes = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "kibaship_deployment_image_bytes_total",
		Help: "Sizes of the images that builds have pushed, in bytes.",
	})
	reconcileMetrics = reconcile.NewMetrics("kibaship_deployment",
		"Reconciliations of Deployments that failed and are tried again. A build that fails is none.")
	perPhase = gauge.NewPhases("kibaship_deployment", "Deployments", kibashipv1.DeploymentPhases,
		gauge.Each(func() client.ObjectList { return &kibashipv1.DeploymentList{} }, inPhase))
)

func init() {
	metrics.Registry.MustRegister(runsStarted, runsEnded, runTimes, buildSeconds, imageBytes, reconcileMetrics, perPhase)
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

// inPhase counts a run that is going on, or whose result is the phase, from the times of the run.
func inPhase(d *kibashipv1.Deployment) gauge.Observation {
	seen := gauge.InPhase(d, cmp.Or(d.Status.Phase, kibashipv1.DeploymentInitializing), d.Status.Conditions)
	if run := d.Status.CurrentPipelineRun; run != nil {
		switch {
		case d.Status.Phase == kibashipv1.DeploymentRunning && run.StartTime != nil:
			seen.Since = run.StartTime.Time
		case run.CompletionTime != nil && (d.Status.Phase == kibashipv1.DeploymentFailed || d.Status.Phase == kibashipv1.DeploymentSucceeded):
			seen.Since = run.CompletionTime.Time
		}
	}
	return seen
}
