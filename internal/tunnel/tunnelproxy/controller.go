package tunnelproxy

import (
	"context"
	"errors"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/finalizer"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
	"github.com/bergctf/berg-operator/internal/tunnel/jobs"
)

// Reconciler makes, watches and ends pairs of proxies.
type Reconciler struct {
	// Client reads from the cache, which must wait for the client's own writes. Secrets are
	// read by Writer.Live alone.
	Client client.Client
	// Writer writes what belongs to a pair.
	Writer apply.Writer
	Events events.EventRecorder
	Clock  clock.PassiveClock
	Config config.Tunnel
	// Namespace is that of the operator.
	Namespace string
	// Workers is how many pairs are worked on at the same time.
	Workers int
	// Images builds images. Nil: there is no registry.
	Images Images
	// Logs reads what server proxies in pods write.
	Logs kubernetes.Interface

	backoff    *outcome.Backoff
	finalizers finalizer.Remover
	work       *jobs.Work
	memory     memory
	// backends are all of them: a pair stays with the one that it was made with.
	backends map[config.TunnelBackend]backend
}

// What pods and Secrets need in the namespaces of networks stands in config/tunnel/rbac, and
// what they need in the operator's own in config/tunnel/host.
//
// +kubebuilder:rbac:groups=usvc-dev.developer.microsoft.com,resources=containernetworktunnelproxies,verbs=list;watch;patch
// +kubebuilder:rbac:groups=usvc-dev.developer.microsoft.com,resources=containernetworktunnelproxies/status,verbs=patch
// +kubebuilder:rbac:groups=usvc-dev.developer.microsoft.com,resources=containernetworktunnelproxies/finalizers,verbs=update
// +kubebuilder:rbac:groups=usvc-dev.developer.microsoft.com,resources=containernetworks,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=services,verbs=list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// reconcile brings one pair a step further, or leaves it alone when there is nothing to do. It
// returns after how long time alone will change something, zero for never.
func (r *Reconciler) reconcile(ctx context.Context, req ctrl.Request) (again time.Duration, err error) {
	p := &tunnelv1.ContainerNetworkTunnelProxy{}
	if err := outcome.WrapNotFound(r.Client.Get(ctx, req.NamespacedName, p)); err != nil {
		if errors.Is(err, outcome.ErrGone) {
			r.finalizers.Forget(req.NamespacedName)
		}
		return 0, err
	}
	r.backoff.ResetIfReplaced(req, p.UID)
	now := r.Clock.Now()
	if p.DeletionTimestamp != nil {
		return 0, r.finalize(ctx, p, now)
	}
	if err := outcome.WrapNotFound(finalizer.Ensure(ctx, r.Client, p, tunnelv1.Finalizer)); err != nil {
		return 0, err
	}
	if p.Status.State == tunnelv1.StateFailed {
		return 0, r.afterEnd(ctx, p, now)
	}
	o, err := r.observe(ctx, p)
	if err != nil {
		return 0, err
	}
	out := Outcome{Observed: o}
	r.advance(ctx, &out, now)
	if out.Problem != nil && out.Problem.Class == outcome.Stale {
		return 0, outcome.ErrConflict
	}
	before := p.DeepCopy()
	computeStatus(out, now)
	if err := r.patchStatus(ctx, before, p); err != nil {
		if problem := out.Problem; problem != nil {
			err = reconcile.Join(problem.Err, err)
		}
		return out.Again, err
	}
	r.report(before, out, now)
	if out.State == tunnelv1.StateFailed {
		return 0, r.tidy(ctx, p)
	}
	if problem := out.Problem; problem != nil {
		err = problem.Err
		if err == nil && problem.Class == outcome.External {
			err = errors.New(problem.Message)
		}
	}
	return out.Again, err
}

// afterEnd looks after a pair that has ended, for ever.
func (r *Reconciler) afterEnd(ctx context.Context, p *tunnelv1.ContainerNetworkTunnelProxy, now time.Time) error {
	if p.Status.ObservedGeneration != p.Generation {
		before := p.DeepCopy()
		computeChangedAfterEnd(p, now)
		if err := r.patchStatus(ctx, before, p); err != nil {
			return err
		}
	}
	return r.tidy(ctx, p)
}

// tidy takes away what is left of a pair that has ended; what its server proxy has written
// stays until it is deleted. It is called by every event of a pod until nothing is left.
func (r *Reconciler) tidy(ctx context.Context, p *tunnelv1.ContainerNetworkTunnelProxy) error {
	var cleaned bool
	r.memory.with(p.UID, func(m *remembered) { cleaned = m.cleaned })
	if cleaned {
		return nil
	}
	gone, err := r.tearDown(ctx, p, true)
	if err != nil || !gone {
		return err
	}
	r.memory.with(p.UID, func(m *remembered) {
		m.hangUp()
		*m = remembered{cleaned: true}
	})
	return nil
}

// patchStatus is the only write of the status. An unchanged one costs nothing.
func (r *Reconciler) patchStatus(ctx context.Context, before, p *tunnelv1.ContainerNetworkTunnelProxy) error {
	return reconcile.Status[*tunnelv1.ContainerNetworkTunnelProxy]{
		Client: r.Client,
		Of:     func(p *tunnelv1.ContainerNetworkTunnelProxy) any { return &p.Status },
		Rejected: func(p *tunnelv1.ContainerNetworkTunnelProxy, err error) {
			// The recorder counts repetitions.
			reconcile.Warning(r.Events, p, tunnelv1.ReasonRefused, actionObserve, "The API server refuses the status of this object: "+err.Error())
		},
	}.Patch(ctx, before, p)
}
