package challengeinstance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// What makes pods of a Deployment are Kubernetes' own controllers, and the API server
// may refuse them what it did not refuse us: a pod for its quota, its security, its
// RuntimeClass, a ReplicaSet for the quota of these. Only the Deployment's status tells.

// replicaSetCreateError is the reason of a Deployment for which no ReplicaSet can be made.
const replicaSetCreateError = "ReplicaSetCreateError"

// Refusal reports whether a condition says that the API server refuses the pods of a
// Deployment. Those of one that gets on never do.
func Refusal(c appsv1.DeploymentCondition) bool {
	switch c.Type {
	case appsv1.DeploymentReplicaFailure:
		return c.Status == corev1.ConditionTrue
	case appsv1.DeploymentProgressing:
		return c.Status == corev1.ConditionFalse && c.Reason == replicaSetCreateError
	default:
		return false
	}
}

// refusalOf returns why a Deployment's pods are not made, nil if nothing is known to keep
// them away. Without a ReplicaSet, the failure of another one is out of date.
func refusalOf(d *appsv1.Deployment) *appsv1.DeploymentCondition {
	var refusal *appsv1.DeploymentCondition
	if d == nil {
		return nil
	}
	for i, c := range d.Status.Conditions {
		if Refusal(c) && (refusal == nil || c.Type == appsv1.DeploymentProgressing) {
			refusal = &d.Status.Conditions[i]
		}
	}
	return refusal
}

// refusalChanged passes what the status of an instance says of a Deployment, and nothing
// else of its status.
var refusalChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		return refusalText(e.ObjectOld) != refusalText(e.ObjectNew)
	},
}

func refusalText(o client.Object) string {
	if c := refusalOf(o.(*appsv1.Deployment)); c != nil {
		return c.Message
	}
	return ""
}

// refusalRetry is how often Kubernetes' controllers are made to try again what they were
// refused. Nothing that we watch tells that the cause is fixed. By itself, the
// controller of ReplicaSets pauses for up to 17 minutes, and that of Deployments gives
// up after three minutes.
const refusalRetry = time.Minute

// retryAt is when to make a Deployment's pods be tried again; zero if none is refused.
func retryAt(d *appsv1.Deployment) time.Time {
	c := refusalOf(d)
	if c == nil {
		return time.Time{}
	}
	last := c.LastTransitionTime.Time
	if t, err := time.Parse(time.RFC3339, d.Annotations[bergv1.AnnotationRetriedAt]); err == nil && t.After(last) {
		last = t
	}
	return last.Add(refusalRetry)
}

// untilRetry is how long it is until pods that were refused are to be tried again, zero
// if there are none.
func untilRetry(o Observed, now time.Time) time.Duration {
	var wait time.Duration
	for _, d := range o.Deployments {
		at := retryAt(d)
		if at.IsZero() {
			continue
		}
		until := at.Sub(now)
		if until <= 0 {
			until = refusalRetry // it is being tried in this pass
		}
		wait = sooner(wait, until)
	}
	return wait
}

// sooner returns the shorter of two waits, of which zero is for ever.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return cmp.Or(a, b)
	}
	return min(a, b)
}

// retryRefused makes Kubernetes' controllers look again at Deployments whose pods were
// refused: they do after every write. The annotation is no part of the plan. Were it, each
// try would count as a repair, and many as a fight with somebody.
func (r *Reconciler) retryRefused(ctx context.Context, o Observed, now time.Time) error {
	var errs []error
	for _, d := range o.Deployments {
		if at := retryAt(d); at.IsZero() || now.Before(at) {
			continue
		}
		// What is cached is not whole.
		live := &appsv1.Deployment{}
		err := r.Live.Get(ctx, client.ObjectKeyFromObject(d), live)
		if err == nil && live.UID == d.UID && ownerOf(o.Instance).Owns(live) {
			metav1.SetMetaDataAnnotation(&live.ObjectMeta, bergv1.AnnotationRetriedAt, now.UTC().Format(time.RFC3339))
			err = r.Client.Update(ctx, live, client.FieldOwner(r.Writer.Manager))
		}
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			errs = append(errs, fmt.Errorf("try the pods of %s again: %w", d.Name, err))
		}
	}
	return errors.Join(errs...)
}
