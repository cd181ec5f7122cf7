package project

import (
	"cmp"
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
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
	perPhase         = gauge.NewPhases("kibaship_project", "Projects", kibashipv1.ProjectPhases, seeProjects)
)

func init() {
	metrics.Registry.MustRegister(timeToReady, reconcileMetrics, perPhase)
}

func seeProjects(ctx context.Context, reader client.Reader) ([]gauge.Observation, error) {
	var projects kibashipv1.ProjectList
	if err := reader.List(ctx, &projects, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	observations := make([]gauge.Observation, len(projects.Items))
	for i := range projects.Items {
		p := &projects.Items[i]
		since := p.CreationTimestamp.Time
		// A status keeps no time for each phase: what is not Ready counts from when it became
		// so, or was first looked at.
		if c := meta.FindStatusCondition(p.Status.Conditions, kibashipv1.ConditionReady); c != nil {
			since = c.LastTransitionTime.Time
		}
		if p.DeletionTimestamp != nil {
			since = p.DeletionTimestamp.Time
		}
		observations[i] = gauge.Observation{Phase: string(cmp.Or(p.Status.Phase, kibashipv1.ProjectPending)), Since: since}
	}
	return observations, nil
}
