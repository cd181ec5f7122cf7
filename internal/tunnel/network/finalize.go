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

// finalize brings the deletion of a network a step further: no proxy uses it, the namespace is deleted if the mode says so,
// and otherwise the operator has no rights in it.
func (r *Reconciler) finalize(ctx context.Context, n *tunnelv1.ContainerNetwork, now time.Time) (done bool, never time.Duration, err error) {
	users, err := r.users(ctx, n.Name)
	if err != nil {
		return false, never, err
	}
	o, err := r.observe(ctx, n)
	if err != nil {
		return false, never, err
	}
	// The proxies are removed with the operator's rights in this namespace, so the binding stays until the last one is gone.
	if len(users) > 0 {
		return false, never, reconcile.Join(r.confine(ctx, n, &o), r.patchTerminating(ctx, n, tunnelv1.ReasonInUse,
			fmt.Sprintf("Waiting for the deletion of ContainerNetworkTunnelProxy %s, which uses this network: delete it", conditions.Enumerate(users)), now))
	}
	deletes, err := r.deletes(ctx, n, o)
	if err != nil {
		return false, never, err
	}
	if deletes {
		if o.Namespace.DeletionTimestamp == nil {
			if err := apply.Delete(ctx, r.Client, o.Namespace); err != nil {
				return false, never, err
			}
		}
		message := fmt.Sprintf("Namespace %s is being deleted", o.Namespace.Name)
		if held := finalizer.HeldBack(o.Namespace); held != "" {
			message = fmt.Sprintf("Namespace %s cannot be deleted: %s", o.Namespace.Name, held)
		}
		return false, never, r.patchTerminating(ctx, n, tunnelv1.ReasonTerminating, message, now) // the namespace's events trigger the next reconciliation
	}
	if o.Namespace != nil {
		if err := r.unbind(ctx, n, o); err != nil {
			return false, never, err
		}
		reconcile.Normal(r.Events, n, tunnelv1.ReasonNamespaceKept, actionDelete, fmt.Sprintf("The network is deleted; namespace %s stays", o.Namespace.Name))
	}
	r.containers.leave(n.Name)
	return true, never, nil
}

// confine puts the network policy back while a network that is being deleted still has pods.
func (r *Reconciler) confine(ctx context.Context, n *tunnelv1.ContainerNetwork, o *Observed) error {
	p := plan(r.inputs(n, o, rbacv1.Subject{})).Policy
	if p == nil || o.Namespace == nil || !o.Ours || o.Namespace.DeletionTimestamp != nil {
		return nil
	}
	_, err := apply.Apply(ctx, r.Writer, ownerFor(n), p)
	return err
}

// patchTerminating writes the reason why a deletion waits, and records an event if it waits for a person. A status that
// the API server refuses does not hold up the deletion.
func (r *Reconciler) patchTerminating(ctx context.Context, n *tunnelv1.ContainerNetwork, reason, message string, now time.Time) error {
	before := n.DeepCopy()
	computeTerminating(n, reason, message, now)
	if err := r.kind.PatchStatus(ctx, before, n, now); err != nil && outcome.Classify(err) != outcome.Rejected {
		return err
	}
	if reason == tunnelv1.ReasonInUse {
		r.kind.Warn(before, n, tunnelv1.ConditionNamespaceReady, reason, actionDelete, message)
	}
	return nil
}

// users returns the names of the tunnel proxies that use a network.
func (r *Reconciler) users(ctx context.Context, name string) ([]string, error) {
	var all tunnelv1.ContainerNetworkTunnelProxyList
	if err := r.Client.List(ctx, &all, client.UnsafeDisableDeepCopy, client.MatchingFields{IndexNetwork: name}); err != nil {
		return nil, err
	}
	var names []string
	for i := range all.Items {
		// One without the finalizer has nothing in the network.
		if controllerutil.ContainsFinalizer(&all.Items[i], tunnelv1.Finalizer) {
			names = append(names, all.Items[i].Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// deletes reports whether the namespace is deleted with the network: only one that the operator made is. The mode cleanup deletes
// a namespace that another, persistent network has left. While that network exists, it still owns it.
func (r *Reconciler) deletes(ctx context.Context, n *tunnelv1.ContainerNetwork, o Observed) (bool, error) {
	ns := o.Namespace
	switch {
	case ns == nil:
		return false, nil
	case n.Spec.EffectiveMode() == tunnelv1.ModeSession:
		return o.Ours, nil
	case n.Spec.EffectiveMode() != tunnelv1.ModeCleanup, ns.Annotations[tunnelv1.AnnotationPersistent] != "true",
		ns.Labels[tunnelv1.LabelManagedBy] != tunnelv1.ManagedBy:
		return false, nil
	}
	// The persistent network that it was made for must be gone.
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

// unbind removes the operator's rights in the namespace.
func (r *Reconciler) unbind(ctx context.Context, n *tunnelv1.ContainerNetwork, o Observed) error {
	b := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace.Name, Name: bindingName(Inputs{UID: n.UID})}}
	exists, err := apply.Find(ctx, r.Writer, b)
	if err != nil || !exists || !ownerFor(n).Owns(b) || b.DeletionTimestamp != nil {
		return err
	}
	return apply.Delete(ctx, r.Client, b, client.DisableReadYourWritesConsistency)
}

// TrimNamespace keeps of a foreign namespace in the cache only that it exists: a cluster has thousands.
func TrimNamespace(ns *corev1.Namespace) {
	if ns.Labels[tunnelv1.LabelManagedBy] == tunnelv1.ManagedBy || ns.Annotations[OwnershipLabels.Annotation()] != "" || ns.DeletionTimestamp != nil {
		return
	}
	*ns = corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns.Name, UID: ns.UID, ResourceVersion: ns.ResourceVersion, CreationTimestamp: ns.CreationTimestamp}}
}
