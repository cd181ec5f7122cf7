package application

import (
	"cmp"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kit/gauge"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// The only label is the phase: never an Application.
var (
	reconcileMetrics = reconcile.NewMetrics("kibaship_application", "Reconciliations of Applications that failed and are tried again.")
	perPhase         = gauge.NewPhases("kibaship_application", "Applications", kibashipv1.ApplicationPhases,
		gauge.Each(func() client.ObjectList { return &kibashipv1.ApplicationList{} }, inPhase))
)

func init() {
	metrics.Registry.MustRegister(reconcileMetrics, perPhase)
}

func inPhase(a *kibashipv1.Application) gauge.Observation {
	phase := cmp.Or(a.Status.Phase, kibashipv1.ApplicationPending)
	if a.DeletionTimestamp != nil {
		phase = kibashipv1.ApplicationDeleting
	}
	return gauge.InPhase(a, phase, a.Status.Conditions)
}
