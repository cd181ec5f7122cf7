package environment

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	"github.com/bergctf/berg-operator/internal/kit/finalizer"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// longestPass bounds one reconciliation, should the API server not answer.
const longestPass = time.Minute

// indexNamespace finds the Environments that want a namespace, by its name. More
// than one may.
const indexNamespace = "namespace"

// SetupWithManager opens the watches. There are no timers.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	r.backoff = outcome.NewBackoff()
	if err := mgr.GetFieldIndexer().IndexField(ctx, &quixv1.Environment{}, indexNamespace, func(o client.Object) []string {
		if name := namespaceName(o.(*quixv1.Environment)); name != "" {
			return []string{name}
		}
		return nil
	}); err != nil {
		return err
	}
	perPhase.Watch(mgr.GetCache(), r.Clock, mgr.Elected())
	// A manager waits for the caches that it knows of before it competes for the
	// lease. The controller would only name them meanwhile.
	for _, kind := range []client.Object{&corev1.Namespace{}, &rbacv1.RoleBinding{}, &rbacv1.ClusterRole{}} {
		if _, err := mgr.GetCache().GetInformer(ctx, kind, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("watch %T: %w", kind, err)
		}
	}

	return ctrl.NewControllerManagedBy(mgr).
		Named("environment").
		For(&quixv1.Environment{}, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, resynced, replaced, finalizer.TakenOff(quixv1.Finalizer)))).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(r.environmentsOfNamespace)).
		Watches(&rbacv1.RoleBinding{}, handler.EnqueueRequestsFromMapFunc(r.environmentsOfNamespace)).
		Watches(&rbacv1.ClusterRole{}, handler.EnqueueRequestsFromMapFunc(r.everyEnvironment)).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: r.Workers,
			ReconciliationTimeout:   longestPass,
		}).
		Complete(r)
}

// resynced passes the events that the cache makes every CACHE_SYNC_PERIOD.
var resynced = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetResourceVersion() == e.ObjectNew.GetResourceVersion()
	},
}

// replaced passes the updates that are none: the Environment was deleted and another one of
// its name was created while the watch was cut off. It may have the same generation.
var replaced = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool { return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() },
}

// environmentsOfNamespace maps a namespace, or an object in one, to the
// Environments that want it.
func (r *Reconciler) environmentsOfNamespace(ctx context.Context, o client.Object) []reconcile.Request {
	return r.requests(ctx, client.MatchingFields{indexNamespace: cmp.Or(o.GetNamespace(), o.GetName())})
}

func (r *Reconciler) everyEnvironment(ctx context.Context, _ client.Object) []reconcile.Request {
	return r.requests(ctx)
}

func (r *Reconciler) requests(ctx context.Context, opts ...client.ListOption) []reconcile.Request {
	var environments quixv1.EnvironmentList
	opts = append(opts, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency)
	if err := r.Client.List(ctx, &environments, opts...); err != nil {
		return nil // only a cache that is shutting down fails
	}
	requests := make([]reconcile.Request, 0, len(environments.Items))
	for i := range environments.Items {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: environments.Items[i].Name}})
	}
	return requests
}
