package network

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/finalizer"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// finalize carries out the deletion of a network: no proxy is in it, the operator may do
// nothing in its namespace any more, and that is as the mode wants it.
func (r *Reconciler) finalize(ctx context.Context, n *tunnelv1.ContainerNetwork, now time.Time) error {
	if !controllerutil.ContainsFinalizer(n, tunnelv1.NetworkFinalizer) || r.finalizers.Done(n) {
		return nil
	}
	users, err := r.users(ctx, n.Name)
	if err != nil {
		return err
	}
	if len(users) > 0 {
		return r.tell(ctx, n, tunnelv1.ReasonInUse,
			fmt.Sprintf("The deletion waits for ContainerNetworkTunnelProxy %s, which uses this network: delete it", conditions.Enumerate(users)), now)
	}
	o, err := r.observe(ctx, n)
	if err != nil {
		return err
	}
	deletes, err := r.deletes(ctx, o)
	if err != nil {
		return err
	}
	if o.Namespace != nil && !deletes {
		if err := r.unbind(ctx, o); err != nil {
			return err
		}
	}
	if deletes {
		if o.Namespace.DeletionTimestamp == nil {
			if err := apply.Delete(ctx, r.Client, o.Namespace); err != nil {
				return err
			}
		}
		why := fmt.Sprintf("Namespace %s is being deleted", o.Namespace.Name)
		if held := finalizer.HeldBack(o.Namespace); held != "" {
			why = fmt.Sprintf("Namespace %s cannot be deleted: %s", o.Namespace.Name, held)
		}
		return r.tell(ctx, n, tunnelv1.ReasonTerminating, why, now) // the namespace's events wake us
	}
	if o.Namespace != nil {
		reconcile.Normal(r.Events, n, tunnelv1.ReasonNamespaceKept, actionDelete, fmt.Sprintf("The network is gone, and namespace %s stays", o.Namespace.Name))
	}
	r.containers.leave(n.Name)
	return r.finalizers.Remove(ctx, r.Client, n, tunnelv1.NetworkFinalizer)
}

// tell writes what a deletion waits for, and says it by an event once.
func (r *Reconciler) tell(ctx context.Context, n *tunnelv1.ContainerNetwork, reason, why string, now time.Time) error {
	before := n.DeepCopy()
	computeTerminating(n, reason, why, now)
	// A status that is refused keeps nobody.
	if err := r.patchStatus(ctx, before, n); err != nil && outcome.CauseOf(err) != outcome.Rejected {
		return err
	}
	c := metav1.Condition{Type: tunnelv1.ConditionNamespaceReady, Status: metav1.ConditionFalse, Reason: reason}
	if reason == tunnelv1.ReasonInUse && conditions.Transitioned(before.Status.Conditions, c) {
		reconcile.Warning(r.Events, n, reason, actionDelete, why)
	}
	return nil
}

// users are the names of the tunnel proxies that name a network.
func (r *Reconciler) users(ctx context.Context, name string) ([]string, error) {
	var all tunnelv1.ContainerNetworkTunnelProxyList
	if err := r.Client.List(ctx, &all, client.UnsafeDisableDeepCopy, client.MatchingFields{IndexNetwork: name}); err != nil {
		return nil, err
	}
	var names []string
	for i := range all.Items {
		// One without a finalizer never had anything in the network, or has nothing any more.
		if controllerutil.ContainsFinalizer(&all.Items[i], tunnelv1.Finalizer) {
			names = append(names, all.Items[i].Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// deletes reports whether the namespace goes with the network. One that somebody else has made
// never does.
func (r *Reconciler) deletes(ctx context.Context, o Observed) (bool, error) {
	ns := o.Namespace
	switch {
	case ns == nil:
		return false, nil
	case o.Network.Spec.ModeOf() == tunnelv1.ModeSession:
		return o.Ours, nil
	case o.Network.Spec.ModeOf() != tunnelv1.ModeCleanup, ns.Annotations[tunnelv1.AnnotationPersistent] != "true",
		ns.Labels[tunnelv1.LabelManagedBy] != tunnelv1.ManagedBy:
		return false, nil
	}
	// It was made for a persistent network, which must be gone.
	maker := ns.Annotations[OwnershipLabels.Annotation()]
	if strings.TrimSpace(maker) == "" {
		return false, nil
	}
	var all tunnelv1.ContainerNetworkList
	if err := r.Client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return false, err
	}
	return !slices.ContainsFunc(all.Items, func(other tunnelv1.ContainerNetwork) bool { return string(other.UID) == maker }), nil
}

// unbind takes the operator's rights in the namespace away.
func (r *Reconciler) unbind(ctx context.Context, o Observed) error {
	b := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace.Name, Name: bindingName(Inputs{UID: o.Network.UID})}}
	exists, err := apply.Find(ctx, r.Writer, b)
	if err != nil || !exists || !ownerOf(o.Network).Owns(b) || b.DeletionTimestamp != nil {
		return err
	}
	return apply.Delete(ctx, r.Client, b, client.DisableReadYourWritesConsistency)
}

// TrimNamespace leaves of a foreign namespace only that it is there: a cluster has thousands.
func TrimNamespace(ns *corev1.Namespace) {
	if ns.Labels[tunnelv1.LabelManagedBy] == tunnelv1.ManagedBy || ns.Annotations[OwnershipLabels.Annotation()] != "" || ns.DeletionTimestamp != nil {
		return
	}
	*ns = corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns.Name, UID: ns.UID, ResourceVersion: ns.ResourceVersion, CreationTimestamp: ns.CreationTimestamp}}
}
