package challengeinstance

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
	"github.com/bergctf/berg-operator/internal/berg/redact"
	"github.com/bergctf/berg-operator/internal/berg/stop"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// finalize carries out the deletion of an instance in any state. It needs neither the Challenge nor any optional API, since
// all objects of an instance are in its namespace. It is done when the namespace is gone. Events lead to the next step; it
// returns the delay until it checks pods that do not end, zero for never.
//
// The order matters: the record is read while the pods exist, the network policies outlive the processes, and the finalizer
// stays until the next instance of the owner may create the namespace.
func (r *Reconciler) finalize(ctx context.Context, instance *bergv1.ChallengeInstance, now time.Time) (done bool, requeueAfter time.Duration, err error) {
	before := instance.DeepCopy()
	// It comes first: a prepared instance that was handed over must not touch its former namespace. While the taker waits, nothing
	// is decided, and its start or end leads to the next step.
	if taker, err := r.observeTaker(ctx, instance); err != nil || taker != takerGone {
		return taker == takerHasIt, 0, err
	}
	ns, err := r.ownNamespace(ctx, instance)
	if err != nil {
		return false, 0, err
	}
	// The logs of a pod end with it, so they are read before the namespace is deleted. The Recorder bounds how long that takes.
	mayGo := r.keepRecord(ctx, instance, ns)
	if ns != nil {
		requeueAfter, err := r.deleteNamespace(ctx, instance, ns, mayGo, now)
		return false, requeueAfter, err
	}

	// It comes after the namespace is gone, and before the finalizer: afterwards no code knows that these objects belonged to this
	// instance.
	if err := r.sweep(ctx, instance); err != nil {
		return false, 0, err
	}
	status.ComputeTerminated(instance, now)
	// A rejected status does not keep an instance whose namespace is gone.
	if err := r.patchTerminating(ctx, before, instance, now); err != nil && outcome.Classify(err) != outcome.Rejected {
		return false, 0, err
	}
	return true, 0, nil
}

// deleteNamespace requests the deletion of the namespace, and stops the pods in it. Events of the namespace lead to the next
// step.
func (r *Reconciler) deleteNamespace(ctx context.Context, instance *bergv1.ChallengeInstance, ns *corev1.Namespace, mayGo bool, now time.Time) (delay time.Duration, err error) {
	before, refused := instance.DeepCopy(), ""
	if ns.DeletionTimestamp == nil && !mayGo {
		return 0, errRecordPending
	}
	if ns.DeletionTimestamp == nil {
		if err = apply.Delete(ctx, r.Client, ns); apierrors.IsConflict(err) {
			return 0, err // the namespace was changed: the next reconciliation reads it again
		}
		if err != nil {
			err = redact.Error(err, instance.Spec.Flag)
			refused = err.Error()
			// The pods run on as long as the API server refuses the deletion, and repairs of a live instance have ended with it.
			err = reconcile.Join(err, r.confine(ctx, instance, ns.Name))
		}
	}
	var pods stop.Remaining
	if err == nil {
		pods, err = stop.Pods(ctx, r.Client, ns.Name, r.policies(ctx).OutlivesNamespace(), now)
	}
	status.ComputeTerminating(instance, ns, refused, pods, now)
	return pods.Again, reconcile.Join(err, r.patchTerminating(ctx, before, instance, now))
}

// confine closes an instance that ends, has lost its network policies, and whose namespace the API server does not delete.
func (r *Reconciler) confine(ctx context.Context, instance *bergv1.ChallengeInstance, namespace string) error {
	cfg := r.Config
	cfg.Challenge.NetworkPolicy = r.policies(ctx)
	for _, closed := range manifests.ClosedPolicies(cfg, namespace) {
		exists, err := apply.Find(ctx, r.Writer, closed.DeepCopyObject().(client.Object))
		if err == nil && !exists {
			_, err = apply.Apply(ctx, r.Writer, manifests.OwnerFor(instance), closed)
		}
		if err != nil {
			return redact.Error(err, instance.Spec.Flag)
		}
	}
	return nil
}

// patchTerminating writes the status of an instance that is being deleted, and reports what
// changed, also if the API server rejects the status.
func (r *Reconciler) patchTerminating(ctx context.Context, before, instance *bergv1.ChallengeInstance, now time.Time) error {
	err := r.kind.PatchStatus(ctx, before, instance, now)
	if err == nil || outcome.Classify(err) == outcome.Rejected {
		r.reportTerminating(ctx, before, instance, now)
	}
	return err
}

// ownNamespace returns the namespace of the instance, nil if it is gone or never belonged to
// this instance. The cache of a new leader may not show yet what its predecessor created, so
// the API server confirms its absence. A namespace of the same name that others own is left alone: this instance then has none.
func (r *Reconciler) ownNamespace(ctx context.Context, instance *bergv1.ChallengeInstance) (*corev1.Namespace, error) {
	owner := manifests.NamespaceOwner(instance)
	ns, err := r.observeNamespace(ctx, manifests.NamespaceFor(instance))
	if err != nil || ns != nil && owner.Owns(ns) {
		return ns, err
	}
	if instance.Status.InstanceID == "" {
		// The ID is persisted before the first object. If this one were out of date, the status
		// could not be written.
		return nil, nil
	}
	ns = &corev1.Namespace{}
	err = r.Live.Get(ctx, types.NamespacedName{Name: manifests.NamespaceFor(instance)}, ns)
	if err != nil {
		return nil, apply.IgnoreAbsent(err)
	}
	if !owner.Owns(ns) {
		return nil, nil
	}
	return ns, nil
}

// sweep deletes the objects that outlived their namespace. Kubernetes deletes the kinds that the API server serves. Just
// after its start the API server does not know custom resources yet, so they can outlive their namespace, and would block
// the next instance of the owner.
func (r *Reconciler) sweep(ctx context.Context, instance *bergv1.ChallengeInstance) error {
	owner, ns := manifests.OwnerFor(instance), manifests.NamespaceFor(instance)
	errs := []error{
		apply.Sweep(ctx, r.Writer, owner, &gatewayv1.HTTPRouteList{}, ns),
		apply.Sweep(ctx, r.Writer, owner, &gatewayv1.TLSRouteList{}, ns),
	}
	if r.Config.Challenge.NetworkPolicy.Cilium() {
		errs = append(errs, apply.Sweep(ctx, r.Writer, owner, &ciliumv2.CiliumNetworkPolicyList{}, ns))
	}
	return errors.Join(errs...)
}
