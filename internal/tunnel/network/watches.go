package network

import (
	"cmp"
	"context"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/kit/admissionpolicy"
	"github.com/bergctf/berg-operator/internal/kit/finalizer"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// The indexes of the cache.
const (
	// IndexNetwork finds the tunnel proxies of a network, by its name.
	IndexNetwork = "containerNetworkName"
	// indexNamespace finds the networks of a namespace, by its name.
	indexNamespace = "namespace"
)

// SetupWithManager starts the watches. There are no timers.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	r.kind = r.newKind()
	r.containers = newContainers(mgr)
	if err := mgr.GetFieldIndexer().IndexField(ctx, &tunnelv1.ContainerNetwork{}, indexNamespace, func(o client.Object) []string {
		n := o.(*tunnelv1.ContainerNetwork)
		return []string{NamespaceName(n.Spec, n.Name, n.UID)}
	}); err != nil {
		return err
	}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &tunnelv1.ContainerNetworkTunnelProxy{}, IndexNetwork, func(o client.Object) []string {
		return []string{o.(*tunnelv1.ContainerNetworkTunnelProxy).Spec.ContainerNetworkName}
	}); err != nil {
		return err
	}
	perState.Watch(mgr.GetCache(), r.Clock, mgr.Elected())
	if err := reconcile.Open(ctx, mgr.GetCache(), kinds()...); err != nil {
		return err
	}
	ofNamespace := handler.EnqueueRequestsFromMapFunc(r.ofNamespace)
	every := handler.EnqueueRequestsFromMapFunc(r.every)
	b := ctrl.NewControllerManagedBy(mgr).
		Named("container-network").
		For(&tunnelv1.ContainerNetwork{}, builder.WithPredicates(predicate.Or(
			predicate.GenerationChangedPredicate{}, reconcile.Replaced, reconcile.StatusLost, finalizer.TakenOff(tunnelv1.NetworkFinalizer)))).
		Watches(&corev1.Namespace{}, ofNamespace).
		Watches(&networkingv1.NetworkPolicy{}, ofNamespace, builder.WithPredicates(named(policyName))).
		Watches(&rbacv1.RoleBinding{}, ofNamespace).
		Watches(&corev1.Node{}, every, builder.WithPredicates(subnetsChanged)).
		// The deletion of a network waits for the end of its proxies.
		Watches(&tunnelv1.ContainerNetworkTunnelProxy{}, handler.EnqueueRequestsFromMapFunc(ofProxy), builder.WithPredicates(reconcile.Deleted)).
		WatchesRawSource(r.containers.source()).
		WithOptions(r.ControllerOptions())
	return admissionpolicy.Watch(b, every, r.Fence, r.Confined).Complete(r.kind.Reconciler())
}

// ofNamespace maps a namespace, or an object in one, to its networks.
func (r *Reconciler) ofNamespace(ctx context.Context, o client.Object) []ctrl.Request {
	return reconcile.Requests(ctx, r.Client, &tunnelv1.ContainerNetworkList{}, nil, client.MatchingFields{indexNamespace: cmp.Or(o.GetNamespace(), o.GetName())})
}

func (r *Reconciler) every(ctx context.Context, _ client.Object) []ctrl.Request {
	return reconcile.Requests(ctx, r.Client, &tunnelv1.ContainerNetworkList{}, nil)
}

func ofProxy(_ context.Context, o client.Object) []ctrl.Request {
	return []ctrl.Request{{NamespacedName: types.NamespacedName{Name: o.(*tunnelv1.ContainerNetworkTunnelProxy).Spec.ContainerNetworkName}}}
}

func named(name string) predicate.Predicate {
	return predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetName() == name })
}

// subnetsChanged accepts nodes that appear, disappear, or change their pod ranges.
var subnetsChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		return !equality.Semantic.DeepEqual(e.ObjectOld.(*corev1.Node).Spec.PodCIDRs, e.ObjectNew.(*corev1.Node).Spec.PodCIDRs)
	},
}
