package project

import (
	"cmp"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kit/gauge"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// The only label is the phase: never a Project.
var (
	timeToReady = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "kibaship_project_time_to_ready_seconds",
		Help:    "Time from the creation of a Project until it was Ready, of those that were Ready at the first attempt.",
		Buckets: []float64{0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300},
	})
	reconcileMetrics = reconcile.NewMetrics("kibaship_project", "Reconciliations of Projects that failed and are tried again.")
	perPhase         = gauge.NewPhases("kibaship_project", "Projects", kibashipv1.ProjectPhases,
		gauge.Each(func() client.ObjectList { return &kibashipv1.ProjectList{} }, inPhase))
)

func init() {
	metrics.Registry.MustRegister(timeToReady, reconcileMetrics, perPhase)
}

func inPhase(p *kibashipv1.Project) gauge.Observation {
	return gauge.InPhase(p, cmp.Or(p.Status.Phase, kibashipv1.ProjectPending), p.Status.Conditions)
}
