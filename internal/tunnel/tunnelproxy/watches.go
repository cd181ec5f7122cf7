package tunnelproxy

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/finalizer"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
	"github.com/bergctf/berg-operator/internal/tunnel/jobs"
	"github.com/bergctf/berg-operator/internal/tunnel/network"
)

// worksAtOnce is how many calls are under way at the same time, and as many waits; most of them
// wait. Images are built one at a time.
const worksAtOnce = 64

// SetupWithManager opens the watches. The only timers are those of retries, of certificates
// and of the deadline of a start. The index of networks is that of package network.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	r.backoff = outcome.NewBackoff()
	r.work = jobs.New(worksAtOnce, map[string]int{workImage: 1})
	if err := r.openBackends(); err != nil {
		return err
	}
	if err := mgr.Add(&traffic{Reconciler: r, seen: map[types.UID]sum{}}); err != nil {
		return err
	}
	perState.Watch(mgr.GetCache(), r.Clock, mgr.Elected())
	if err := reconcile.Open(ctx, mgr.GetCache(), &tunnelv1.ContainerNetwork{}, &corev1.Pod{}, &corev1.Service{}, &networkingv1.NetworkPolicy{}, &corev1.Node{}); err != nil {
		return err
	}
	owner := handler.EnqueueRequestsFromMapFunc(ofObject)
	return ctrl.NewControllerManagedBy(mgr).
		Named("tunnel-proxy").
		For(&tunnelv1.ContainerNetworkTunnelProxy{}, builder.WithPredicates(predicate.Or(
			predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, reconcile.Replaced, finalizer.TakenOff(tunnelv1.Finalizer)))).
		Watches(&tunnelv1.ContainerNetwork{}, handler.EnqueueRequestsFromMapFunc(r.ofNetwork)).
		Watches(&corev1.Pod{}, owner).
		Watches(&corev1.Service{}, owner).
		Watches(&networkingv1.NetworkPolicy{}, owner).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.every), builder.WithPredicates(nodeChanged)).
		WatchesRawSource(r.work.Source()).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: r.Workers,
			ReconciliationTimeout:   reconcile.Timeout,
		}).
		Complete(reconcile.New(r.Clock, r.backoff, reconcileMetrics, r.reconcile))
}

func (r *Reconciler) openBackends() error {
	if r.Logs == nil {
		return errors.New("server proxies in pods need a reader of logs")
	}
	local := newLocalProcess(r.Config.Binary, r.work, r.Clock)
	r.backends = map[config.TunnelBackend]backend{
		config.BackendHostPod:      &hostPod{reader: r.Client, writer: r.Writer, logs: r.Logs, work: r.work, namespace: r.Namespace},
		config.BackendLocalProcess: local,
	}
	if r.Config.Backend == config.BackendLocalProcess {
		return local.makeFolder()
	}
	return nil
}

// backendOf is how the server proxy of a pair runs, or is to.
func (r *Reconciler) backendOf(p *tunnelv1.ContainerNetworkTunnelProxy) backend {
	if b := r.backends[config.TunnelBackend(p.Status.ServerProxyBackend)]; b != nil {
		return b
	}
	return r.backends[r.Config.Backend]
}

// ofObject maps an object to the pair that owns it.
func ofObject(_ context.Context, o client.Object) []ctrl.Request {
	name, _, ok := proxyOf(o)
	if !ok {
		return nil
	}
	return []ctrl.Request{{NamespacedName: types.NamespacedName{Name: name}}}
}

// ofNetwork maps a network to the pairs in it.
func (r *Reconciler) ofNetwork(ctx context.Context, o client.Object) []ctrl.Request {
	return reconcile.Requests(ctx, r.Client, &tunnelv1.ContainerNetworkTunnelProxyList{}, nil, client.MatchingFields{network.IndexNetwork: o.GetName()})
}

func (r *Reconciler) every(ctx context.Context, _ client.Object) []ctrl.Request {
	return reconcile.Requests(ctx, r.Client, &tunnelv1.ContainerNetworkTunnelProxyList{}, nil)
}

// nodeChanged passes nodes that come, go, become ready or cease to be, and those that have other
// addresses: policies let these in.
var nodeChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
		return nodeReady(before) != nodeReady(after) || !slices.Equal(nodeAddresses(before), nodeAddresses(after))
	},
}
