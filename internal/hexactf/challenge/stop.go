package challenge

import (
	"context"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/cache"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// stop scales an isolated challenge that is being deleted to zero, and reports whether its last pod is gone. A program may ignore
// the signal to end for the whole grace period, and until then a network policy must select its pod. So the policies have no owner,
// are put back while pods are left, and are deleted after the last pod. A challenge without policies is not waited for: its pods
// go with the Deployments.
func (r *Reconciler) stop(ctx context.Context, c *hexactfv1.Challenge) (stopped bool, err error) {
	started, err := decodeSnapshot(c)
	if err != nil || started == nil || !started.Isolated {
		return true, nil //nolint:nilerr // nothing tells what it was started with, and a deletion must not fail for that
	}
	in := r.inputs(Observed{Challenge: c, Started: started})
	stopped, err = r.scaleDown(ctx, c, in)
	if err == nil && stopped {
		var running bool
		running, err = r.podsRun(ctx, c.Namespace, partOfLabel(c.Name))
		stopped = !running
	}
	switch {
	case err != nil:
		return false, err
	case stopped:
		return true, r.release(ctx, c, in)
	default:
		return false, r.confine(ctx, c, in)
	}
}

// scaleDown scales the Deployments of a challenge to zero, and reports whether none of them creates pods any more. The
// Deployments stay until the garbage collector deletes them. A zero is enough to stop their pods.
func (r *Reconciler) scaleDown(ctx context.Context, c *hexactfv1.Challenge, in Inputs) (stopped bool, err error) {
	stopped = true
	for _, component := range in.Snapshot.Components {
		key := client.ObjectKey{Namespace: c.Namespace, Name: in.prefix(component.Name) + deploymentSuffix}
		d, err := apply.Found(ctx, r.Client, key, &appsv1.Deployment{})
		if err == nil && d != nil && cache.Reduced(d) { // its replicas are not known
			d, err = apply.Found(ctx, r.Writer.Live, key, &appsv1.Deployment{})
		}
		switch {
		case err != nil:
			return false, err
		case d == nil || !ownerFor(c).Owns(d):
		case d.DeletionTimestamp == nil && ptr.Deref(d.Spec.Replicas, 1) != 0:
			if err := outcome.WrapNotFound(apply.ScaleToZero(ctx, r.Writer, ownerFor(c), key)); err != nil {
				return false, err
			}
			stopped = false
		case d.Status.ObservedGeneration < d.Generation, slices.Contains(d.Finalizers, metav1.FinalizerDeleteDependents):
			stopped = false // a pod may still be created: by the ReplicaSet, where the Deployment is deleted in the foreground
		}
	}
	return stopped, nil
}

// confine puts the network policies of a challenge back while it has pods. Where the API server takes none, as in a namespace that
// is being deleted, its pods end without them.
func (r *Reconciler) confine(ctx context.Context, c *hexactfv1.Challenge, in Inputs) error {
	for _, p := range networkPolicies(in) {
		_, err := apply.Apply(ctx, r.Writer, ownerFor(c), p)
		if class := outcome.Classify(err); err != nil && (class == outcome.Failed || class == outcome.Conflict) {
			return err
		}
	}
	return nil
}

// release deletes the network policies of a challenge whose last pod is gone.
func (r *Reconciler) release(ctx context.Context, c *hexactfv1.Challenge, in Inputs) error {
	for _, p := range networkPolicies(in) {
		live, err := apply.Found(ctx, r.Client, client.ObjectKeyFromObject(p), &networkingv1.NetworkPolicy{})
		if err == nil && live != nil && live.DeletionTimestamp == nil && ownerFor(c).Owns(live) {
			err = outcome.WrapNotFound(apply.Delete(ctx, r.Client, live))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// stopping enqueues the challenges that are being deleted and may wait for this Deployment or pod, or lack this network policy.
func (r *Reconciler) stopping() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[ctrl.Request]
	enqueue := func(ctx context.Context, o client.Object, q queue) {
		label := o.GetLabels()[hexactfv1.LabelPartOf]
		if label == "" {
			return
		}
		requests := reconcile.Requests(ctx, r.Client, listChallenges(), func(o client.Object) bool { return !isLive(o) },
			client.InNamespace(o.GetNamespace()), client.MatchingFields{indexPartOf: label})
		q.(priorityqueue.PriorityQueue[ctrl.Request]).AddWithOpts(priorityqueue.AddOpts{Priority: ptr.To(terminatingPriority)}, requests...)
	}
	return handler.Funcs{
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			switch after := e.ObjectNew.(type) {
			case *appsv1.Deployment:
				if ptr.Deref(after.Spec.Replicas, 1) != 0 || after.Status.ObservedGeneration < after.Generation {
					return
				}
			case *corev1.Pod:
				if !isOver(after) {
					return
				}
			}
			enqueue(ctx, e.ObjectNew, q)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { enqueue(ctx, e.Object, q) },
	}
}
