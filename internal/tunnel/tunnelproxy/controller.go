package tunnelproxy

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
	"github.com/bergctf/berg-operator/internal/tunnel/tunnelproxy/status"
)

// The rights for pods and Secrets in the namespaces of networks are in config/tunnel/rbac, those in the operator's own
// namespace in config/tunnel/host.
//
// +kubebuilder:rbac:groups=usvc-dev.developer.microsoft.com,resources=containernetworktunnelproxies,verbs=list;watch;patch
// +kubebuilder:rbac:groups=usvc-dev.developer.microsoft.com,resources=containernetworktunnelproxies/status,verbs=patch
// +kubebuilder:rbac:groups=usvc-dev.developer.microsoft.com,resources=containernetworktunnelproxies/finalizers,verbs=update
// +kubebuilder:rbac:groups=usvc-dev.developer.microsoft.com,resources=containernetworks,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=services,verbs=list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// newKind returns the steps that are particular to pairs of proxies; kit/reconcile does the rest.
func (r *Reconciler) newKind() *reconcile.Kind[*tunnelv1.ContainerNetworkTunnelProxy, status.Outcome] {
	return &reconcile.Kind[*tunnelv1.ContainerNetworkTunnelProxy, status.Outcome]{
		Client: r.Client, Live: r.Writer.Live, Events: r.Events, Clock: r.Clock, Metrics: reconcileMetrics,
		Finalizer: tunnelv1.Finalizer,
		Observe:   r.observe,
		Apply:     r.apply,
		Status: func(_ *tunnelv1.ContainerNetworkTunnelProxy, out status.Outcome, problems outcome.Problems, now time.Time) reconcile.Ready {
			return status.Compute(out, problems.First(), now)
		},
		Report:          r.report,
		OlderGeneration: true,
		RequeueAfter:    requeueAfter,
		Finalize:        r.finalize,
	}
}

func requeueAfter(_ *tunnelv1.ContainerNetworkTunnelProxy, out status.Outcome, _ outcome.Problems, _ time.Time) time.Duration {
	if out.State == tunnelv1.StateFailed {
		return time.Millisecond // it is tidied up only once the status says that it has failed
	}
	return out.Again
}

// tidy deletes the objects of a Failed pair, but not the output of its server proxy. Every event of a pod calls it, until
// none is left. The output of a local process stays for the person who looks for the cause.
func (r *Reconciler) tidy(ctx context.Context, p *tunnelv1.ContainerNetworkTunnelProxy) error {
	if _, done := r.tidied.Load(p.UID); done {
		return nil
	}
	gone, err := r.tearDown(ctx, p, true)
	if err != nil || !gone {
		return err
	}
	r.forget(p.UID)
	r.tidied.Store(p.UID, true)
	return nil
}

// forget drops the state in memory of a pair.
func (r *Reconciler) forget(uid types.UID) {
	r.jobs.Forget(uid)
	r.credentials.Forget(uid)
	r.hostPorts.release(uid)
	r.tidied.Delete(uid)
}
