package application

import (
	"cmp"
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kit/gauge"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// The only label is the phase: never an Application.
var (
	reconcileMetrics = reconcile.NewMetrics("kibaship_application", "Reconciliations of Applications that failed and are tried again.")
	perPhase         = gauge.NewPhases("kibaship_application", "Applications", kibashipv1.ApplicationPhases, seeApplications)
)

func init() {
	metrics.Registry.MustRegister(reconcileMetrics, perPhase)
}

func seeApplications(ctx context.Context, reader client.Reader) ([]gauge.Observation, error) {
	var applications kibashipv1.ApplicationList
	if err := reader.List(ctx, &applications, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	observations := make([]gauge.Observation, len(applications.Items))
	for i := range applications.Items {
		a := &applications.Items[i]
		phase, since := cmp.Or(a.Status.Phase, kibashipv1.ApplicationPending), a.CreationTimestamp.Time
		if c := meta.FindStatusCondition(a.Status.Conditions, kibashipv1.ConditionReady); c != nil {
			since = c.LastTransitionTime.Time
		}
		if a.DeletionTimestamp != nil {
			phase, since = kibashipv1.ApplicationDeleting, a.DeletionTimestamp.Time
		}
		observations[i] = gauge.Observation{Phase: phase, Since: since}
	}
	return observations, nil
}
