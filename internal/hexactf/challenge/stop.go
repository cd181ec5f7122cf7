package challenge

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
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

// stop scales an isolated challenge that is being deleted to zero, and reports whether its last pod is gone. The garbage
// collector deletes network policies and Deployments side by side, and a program may ignore the signal to end for the
// whole grace period: no policy would select its pod for that time. So nothing is released before.
func (r *Reconciler) stop(ctx context.Context, c *hexactfv1.Challenge) (stopped bool, err error) {
	started, err := decodeSnapshot(c)
	if err != nil || started == nil || !started.Isolated {
		return true, nil //nolint:nilerr // nothing tells what it was started with, and a deletion must not fail for that
	}
	in := r.inputs(Observed{Challenge: c, Started: started})
	stopped = true
	for _, component := range started.Components {
		key := client.ObjectKey{Namespace: c.Namespace, Name: in.prefix(component.Name) + deploymentSuffix}
		d := &appsv1.Deployment{}
		if err := r.Client.Get(ctx, key, d); err != nil {
			if apply.IgnoreAbsent(err) != nil {
				return false, err
			}
			continue
		}
		if !ownerFor(c).Owns(d) {
			continue
		}
		if cache.Reduced(d) { // its replicas are not known
			if d, err = apply.Found(ctx, r.Writer.Live, key, &appsv1.Deployment{}); err != nil {
				return false, err
			}
			if d == nil || !ownerFor(c).Owns(d) {
				continue
			}
		}
		if d.DeletionTimestamp == nil && ptr.Deref(d.Spec.Replicas, 1) != 0 {
			if err := outcome.WrapNotFound(apply.ScaleToZero(ctx, r.Writer, ownerFor(c), key)); err != nil {
				return false, err
			}
			stopped = false
		} else if d.Status.ObservedGeneration < d.Generation {
			stopped = false // a pod may still be created
		}
	}
	if !stopped {
		return false, nil
	}
	var pods corev1.PodList
	err = r.Client.List(ctx, &pods, client.InNamespace(c.Namespace),
		client.MatchingFields{indexPartOf: partOfLabel(c.Name)}, client.DisableReadYourWritesConsistency)
	for i := range pods.Items {
		if !isOver(&pods.Items[i]) {
			return false, err
		}
	}
	return err == nil, err
}

// isOver reports whether no container of a pod runs or ever will.
func isOver(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// stopping enqueues the challenges that are being deleted and may wait for this Deployment or pod.
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
