package network

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// The right to bind names one ClusterRole, which is bound only in the namespaces of networks. The operator has the rights
// for tunnels, such as rights to pods and Secrets, nowhere else.
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
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingadmissionpolicies;validatingadmissionpolicybindings,resourceNames=berg-operator-fence;berg-operator-tunnel-confined-pods,verbs=list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// newKind returns the steps that are particular to ContainerNetworks; kit/reconcile does the rest.
func (r *Reconciler) newKind() *reconcile.Kind[*tunnelv1.ContainerNetwork, Observed] {
	return &reconcile.Kind[*tunnelv1.ContainerNetwork, Observed]{
		Client: r.Client, Live: r.Writer.Live, Events: r.Events, Clock: r.Clock, Metrics: reconcileMetrics,
		Finalizer: tunnelv1.NetworkFinalizer,
		Observe:   r.observe,
		Check:     check,
		Apply:     r.apply,
		Status:    computeStatus,
		Report:    r.report,
		Finalize:  r.finalize,
		Forget: func(_ context.Context, key types.NamespacedName) error {
			r.containers.leave(key.Name)
			return nil
		},
	}
}

// apply writes the namespace, then the operator's rights in it, and then the objects that confine it. The containers are followed
// last: the right to watch pods in the namespace comes with the binding.
func (r *Reconciler) apply(ctx context.Context, n *tunnelv1.ContainerNetwork, o *Observed, problems *outcome.Problems) error {
	if len(*problems) == 0 {
		problems.Add(r.build(ctx, n, o))
	}
	if len(*problems) > 0 {
		return nil
	}
	if err := r.containers.follow(n, o.Namespace.Name); err != nil { //nolint:contextcheck // the watch outlives the reconciliation
		return err
	}
	o.Containers, o.Counted = r.containers.runningIDs(ctx, n.Name, n.UID)
	return nil
}

// build applies the plan. It returns the problem that stopped it, nil for none. The policy is in place before a proxy can run:
// package tunnelproxy waits for the state Running.
func (r *Reconciler) build(ctx context.Context, n *tunnelv1.ContainerNetwork, o *Observed) *outcome.Problem {
	operator, err := r.Identity(ctx)
	if err != nil {
		return confinedProblem(err)
	}
	p, owner := plan(r.inputs(n, o, operator)), ownerFor(n)
	if p.Namespace != nil {
		if err := r.prepareNamespace(ctx, n, o); err != nil {
			return namespaceProblem(err)
		}
		live, err := apply.Apply(ctx, r.Writer, r.tokens.Complete(namespaceOwner(n)), p.Namespace)
		if err != nil {
			return namespaceProblem(err)
		}
		o.Namespace, o.Ours = live, true
	}
	// The binding comes first: it gives the operator the rights for all that follows.
	if _, err := apply.Apply(ctx, r.Writer, owner, p.Binding); err != nil {
		return confinedProblem(err)
	}
	if p.Policy != nil {
		if _, err := apply.Apply(ctx, r.Writer, owner, p.Policy); err != nil {
			return confinedProblem(err)
		}
	}
	return nil
}

// prepareNamespace makes sure that the namespace can be created. A new network costs a read and a write for that.
func (r *Reconciler) prepareNamespace(ctx context.Context, n *tunnelv1.ContainerNetwork, o *Observed) error {
	_, err := apply.PrepareNamespace(ctx, r.Writer, r.tokens.Complete(namespaceOwner(n)), o.Namespace, NamespaceName(n.Spec, n.Name, n.UID), func() error {
		before := n.DeepCopy()
		n.Status.NamespaceTokenHash = r.tokens.Draw()
		return r.kind.PatchStatus(ctx, before, n, r.Clock.Now())
	})
	return err
}

// kinds returns the kinds of objects that the status of a network depends on.
func kinds() []client.Object {
	return []client.Object{&corev1.Namespace{}, &networkingv1.NetworkPolicy{}, &rbacv1.RoleBinding{}, &corev1.Node{}}
}
