package tunnelproxy

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/finalizer"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
	"github.com/bergctf/berg-operator/internal/tunnel/jobs"
	"github.com/bergctf/berg-operator/internal/tunnel/network"
	"github.com/bergctf/berg-operator/internal/tunnel/pairobjects"
	"github.com/bergctf/berg-operator/internal/tunnel/tunnelproxy/backend"
	"github.com/bergctf/berg-operator/internal/tunnel/tunnelproxy/credentials"
	"github.com/bergctf/berg-operator/internal/tunnel/tunnelproxy/manifests"
	"github.com/bergctf/berg-operator/internal/tunnel/tunnelproxy/tunnelsync"
)

// maxJobs is how many jobs of a kind run at the same time. Most of them wait. Images are built one at a time.
const maxJobs = 64

// SetupWithManager starts the watches. Timers are for retries, certificates and the deadline of a start only. Package
// network has the index of pairs by network.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	if err := r.init(); err != nil {
		return err
	}
	if err := mgr.Add(r.traffic); err != nil {
		return err
	}
	perState.Watch(mgr.GetCache(), r.Clock, mgr.Elected())
	if err := reconcile.Open(ctx, mgr.GetCache(), &tunnelv1.ContainerNetwork{}, &corev1.Pod{}, &corev1.Service{}, &networkingv1.NetworkPolicy{}, &corev1.Node{}); err != nil {
		return err
	}
	owner := handler.EnqueueRequestsFromMapFunc(r.ofObject)
	return ctrl.NewControllerManagedBy(mgr).
		Named("tunnel-proxy").
		For(&tunnelv1.ContainerNetworkTunnelProxy{}, builder.WithPredicates(predicate.Or(
			predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, reconcile.Replaced, reconcile.StatusLost, finalizer.TakenOff(tunnelv1.Finalizer)))).
		Watches(&tunnelv1.ContainerNetwork{}, handler.EnqueueRequestsFromMapFunc(r.ofNetwork)).
		Watches(&corev1.Pod{}, owner).
		Watches(&corev1.Service{}, owner).
		Watches(&networkingv1.NetworkPolicy{}, owner).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.every), builder.WithPredicates(nodeChanged)).
		WatchesRawSource(r.jobs.Source()).
		WithOptions(r.ControllerOptions()).
		Complete(r.kind.Reconciler())
}

// init creates the parts of the Reconciler.
func (r *Reconciler) init() (err error) {
	r.kind = r.newKind()
	r.jobs = jobs.New(maxJobs, map[string]int{jobImage: 1})
	r.credentials = &credentials.Store{
		Client: r.Client, Writer: r.Writer, Namespace: r.Namespace,
		Lifetime: r.Config.CertificateLifetime, PullSecret: r.Config.PullSecret,
	}
	r.traffic = &tunnelsync.Traffic{Reader: r.Client, Jobs: r.jobs, Config: r.Config, Identity: r.credentials.Identity}
	r.backends, err = backend.New(r.Config, r.Namespace, r.Writer, r.Logs, r.jobs, r.Clock)
	return err
}

// ofObject maps an object to the pair that owns it, or whose UID it carries: a network policy has no owner, and what is left of a
// pair that is deleted with --cascade=orphan has none any more.
func (r *Reconciler) ofObject(ctx context.Context, o client.Object) []ctrl.Request {
	if name, ok := manifests.OwnerName(o); ok {
		return []ctrl.Request{{NamespacedName: types.NamespacedName{Name: name}}}
	}
	uid := o.GetAnnotations()[pairobjects.Labels.Annotation()]
	if uid == "" {
		return nil
	}
	return reconcile.Requests(ctx, r.Client, &tunnelv1.ContainerNetworkTunnelProxyList{}, func(p client.Object) bool { return string(p.GetUID()) == uid })
}

// ofNetwork maps a network to the pairs in it.
func (r *Reconciler) ofNetwork(ctx context.Context, o client.Object) []ctrl.Request {
	return reconcile.Requests(ctx, r.Client, &tunnelv1.ContainerNetworkTunnelProxyList{}, nil, client.MatchingFields{network.IndexNetwork: o.GetName()})
}

func (r *Reconciler) every(ctx context.Context, _ client.Object) []ctrl.Request {
	return reconcile.Requests(ctx, r.Client, &tunnelv1.ContainerNetworkTunnelProxyList{}, nil)
}

// nodeChanged accepts nodes that appear, disappear, or change their readiness or addresses: policies have these.
var nodeChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
		return conditions.NodeReady(before) != conditions.NodeReady(after) || !slices.Equal(manifests.NodeAddresses(before), manifests.NodeAddresses(after))
	},
}
