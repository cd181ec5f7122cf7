package environment

import (
	"cmp"
	"context"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	"github.com/bergctf/berg-operator/internal/kit/admissionpolicy"
	"github.com/bergctf/berg-operator/internal/kit/finalizer"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// indexNamespace finds the Environments that need a namespace, by its name. There may be more than one.
const indexNamespace = "namespace"

// SetupWithManager opens the watches. There are no timers.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	r.kind = r.newKind()
	if err := mgr.GetFieldIndexer().IndexField(ctx, &quixv1.Environment{}, indexNamespace, func(o client.Object) []string {
		if name := namespaceName(o.(*quixv1.Environment)); name != "" {
			return []string{name}
		}
		return nil
	}); err != nil {
		return err
	}
	perPhase.Watch(mgr.GetCache(), r.Clock, mgr.Elected())
	if err := reconcile.Open(ctx, mgr.GetCache(), &corev1.Namespace{}, &rbacv1.RoleBinding{}, &rbacv1.ClusterRole{}); err != nil {
		return err
	}

	every := handler.EnqueueRequestsFromMapFunc(r.everyEnvironment)
	b := ctrl.NewControllerManagedBy(mgr).
		Named("environment").
		For(&quixv1.Environment{}, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{},
			resynced, reconcile.Replaced, reconcile.StatusLost, proofChanged, finalizer.TakenOff(quixv1.Finalizer)))).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(r.namespaceRequests)).
		Watches(&rbacv1.RoleBinding{}, handler.EnqueueRequestsFromMapFunc(r.namespaceRequests)).
		Watches(&rbacv1.ClusterRole{}, every).
		WithOptions(r.ControllerOptions())
	return admissionpolicy.Watch(b, every, r.Fence).Complete(r.kind.Reconciler())
}

// resynced accepts the events that the cache emits every CACHE_SYNC_PERIOD.
var resynced = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetResourceVersion() == e.ObjectNew.GetResourceVersion()
	},
}

// proofChanged selects the updates that change the UID of the namespace in the status: an administrator hands a namespace over, or
// an older operator has dropped the UID.
var proofChanged = reconcile.Updates(func(before, after client.Object) bool {
	return before.(*quixv1.Environment).Status.NamespaceUID != after.(*quixv1.Environment).Status.NamespaceUID
})

// namespaceRequests maps a namespace, or an object in one, to the Environments that need it.
func (r *Reconciler) namespaceRequests(ctx context.Context, o client.Object) []ctrl.Request {
	return reconcile.Requests(ctx, r.Client, &quixv1.EnvironmentList{}, nil, client.MatchingFields{indexNamespace: cmp.Or(o.GetNamespace(), o.GetName())})
}

func (r *Reconciler) everyEnvironment(ctx context.Context, _ client.Object) []ctrl.Request {
	return reconcile.Requests(ctx, r.Client, &quixv1.EnvironmentList{}, nil)
}
