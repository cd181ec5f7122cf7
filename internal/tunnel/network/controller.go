package network

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
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
)

// Reconciler makes, watches and ends networks.
type Reconciler struct {
	// Client reads from the cache, which must wait for the client's own writes.
	Client client.Client
	// Writer writes everything that belongs to a network.
	Writer apply.Writer
	Events events.EventRecorder
	Clock  clock.PassiveClock
	Config config.Tunnel
	// Identity tells who the operator is: it binds itself in the namespaces of networks.
	Identity func(context.Context) (rbacv1.Subject, error)
	// Workers is how many networks are worked on at the same time.
	Workers int

	backoff    *outcome.Backoff
	finalizers finalizer.Remover
	containers *containers
}

// The right to bind names one ClusterRole, which is bound in the namespaces of networks alone:
// what tunnels need there, pods and Secrets among it, the operator has nowhere else.
//
// +kubebuilder:rbac:groups=usvc-dev.developer.microsoft.com,resources=containernetworks,verbs=list;watch;patch
// +kubebuilder:rbac:groups=usvc-dev.developer.microsoft.com,resources=containernetworks/status,verbs=patch
// +kubebuilder:rbac:groups=usvc-dev.developer.microsoft.com,resources=containernetworks/finalizers,verbs=update
// +kubebuilder:rbac:groups=usvc-dev.developer.microsoft.com,resources=containernetworktunnelproxies,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch
// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=list;watch
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=rolebindings,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles,resourceNames=berg-operator-tunnel-network,verbs=bind
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// reconcile brings one network a step further, or leaves it alone when there is nothing to do.
// Events alone wake it.
func (r *Reconciler) reconcile(ctx context.Context, req ctrl.Request) (never time.Duration, err error) {
	n := &tunnelv1.ContainerNetwork{}
	if err := outcome.WrapNotFound(r.Client.Get(ctx, req.NamespacedName, n)); err != nil {
		if errors.Is(err, outcome.ErrGone) {
			r.finalizers.Forget(req.NamespacedName)
			r.containers.leave(req.Name)
		}
		return never, err
	}
	r.backoff.ResetIfReplaced(req, n.UID)
	now := r.Clock.Now()
	if n.DeletionTimestamp != nil {
		return never, r.finalize(ctx, n, now)
	}
	if err := outcome.WrapNotFound(finalizer.Ensure(ctx, r.Client, n, tunnelv1.NetworkFinalizer)); err != nil {
		return never, err
	}
	o, err := r.observe(ctx, n)
	if err != nil {
		return never, err
	}
	out := Outcome{Observed: o, Problem: check(o)}
	if out.Problem == nil {
		out.Problem = r.build(ctx, &out.Observed)
	}
	if out.Problem != nil && out.Problem.Class == outcome.Stale {
		return never, outcome.ErrConflict
	}
	if out.Problem == nil {
		if err := r.containers.follow(n, out.Namespace.Name); err != nil { //nolint:contextcheck // the watch outlives the pass
			return never, err
		}
		out.Containers, out.Counted = r.containers.of(n.Name, n.UID)
	}
	before := n.DeepCopy()
	computeStatus(out, now)
	err = r.patchStatus(ctx, before, n)
	if err == nil {
		r.report(before, n)
	}
	if p := out.Problem; p != nil && p.Err != nil {
		err = reconcile.Join(p.Err, err)
	}
	return never, err
}

// build applies the plan: the namespace, then what the operator may do in it, and what confines it.
func (r *Reconciler) build(ctx context.Context, o *Observed) *outcome.Problem {
	operator, err := r.Identity(ctx)
	if err != nil {
		return problemOf(tunnelv1.ConditionConfined, err)
	}
	p := plan(r.inputs(o, operator))
	proven := ownerOf(o.Network)
	if p.Namespace != nil {
		live, err := apply.Apply(ctx, r.Writer, proven, p.Namespace)
		if err != nil {
			return problemOf(tunnelv1.ConditionNamespaceReady, err)
		}
		o.Namespace, o.Ours = live, true
	}
	// All that follows the operator may do by this alone.
	if _, err := apply.Apply(ctx, r.Writer, proven, p.Binding); err != nil {
		return problemOf(tunnelv1.ConditionConfined, err)
	}
	if p.Policy != nil {
		if _, err := apply.Apply(ctx, r.Writer, proven, p.Policy); err != nil {
			return problemOf(tunnelv1.ConditionConfined, err)
		}
	}
	return nil
}

func (r *Reconciler) inputs(o *Observed, operator rbacv1.Subject) Inputs {
	n := o.Network
	return Inputs{
		UID: n.UID, Name: n.Name, Spec: n.Spec,
		Made:     makes(n.Spec) && (o.Namespace == nil || o.Ours),
		Operator: operator,
		Closed:   append([]int32{r.Config.ControlPort, r.Config.DataPort}, o.ControlPorts...),
	}
}

// patchStatus is the only write of the status. An unchanged one costs nothing.
func (r *Reconciler) patchStatus(ctx context.Context, before, n *tunnelv1.ContainerNetwork) error {
	return reconcile.Status[*tunnelv1.ContainerNetwork]{
		Client: r.Client,
		Of:     func(n *tunnelv1.ContainerNetwork) any { return &n.Status },
		Rejected: func(n *tunnelv1.ContainerNetwork, err error) {
			// The recorder counts repetitions.
			reconcile.Warning(r.Events, n, tunnelv1.ReasonRefused, actionObserve, "The API server refuses the status of this ContainerNetwork: "+err.Error())
		},
	}.Patch(ctx, before, n)
}

// kinds are those that a network consists of.
func kinds() []client.Object {
	return []client.Object{&corev1.Namespace{}, &networkingv1.NetworkPolicy{}, &rbacv1.RoleBinding{}, &corev1.Node{}}
}
