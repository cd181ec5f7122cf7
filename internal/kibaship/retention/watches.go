package retention

import (
	"context"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// timeout bounds one clean-up.
const timeout = 10 * time.Minute

// SetupWithManager opens the watches. An Application is cleaned up when a build of it has ended, and once a day. One registry holds the images of
// all, so they are cleaned up one after the other. The day is counted from the last reconciliation. At a restart each Application
// is looked through once.
func (r *Reconciler) SetupWithManager(_ context.Context, mgr ctrl.Manager) error {
	r.backoff = outcome.NewBackoff()
	return ctrl.NewControllerManagedBy(mgr).
		Named("kibaship-images").
		For(&kibashipv1.Application{}, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, reconcile.Replaced))).
		Watches(&kibashipv1.Deployment{}, handler.EnqueueRequestsFromMapFunc(ofDeployment), builder.WithPredicates(buildEnded)).
		WithOptions(controller.Options{MaxConcurrentReconciles: 1, ReconciliationTimeout: timeout}).
		Complete(reconcile.New(r.Clock, r.backoff, reconcileMetrics, r.reconcile))
}

// ofDeployment maps a Deployment to its Application.
func ofDeployment(_ context.Context, o client.Object) []ctrl.Request {
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: o.GetNamespace(), Name: o.(*kibashipv1.Deployment).Spec.ApplicationRef.Name}}}
}

// buildEnded accepts Deployments whose build has ended, or that are gone with the images that they named.
var buildEnded = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return unsettled(e.ObjectOld.(*kibashipv1.Deployment)) && !unsettled(e.ObjectNew.(*kibashipv1.Deployment))
	},
}
