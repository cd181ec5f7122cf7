package status

import (
	"cmp"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

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

// RefusalOf returns why a Deployment's pods are not made, nil if nothing is known to keep
// them away. Without a ReplicaSet, the failure of another one is out of date.
func RefusalOf(d *appsv1.Deployment) *appsv1.DeploymentCondition {
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

// refusalRetry is how often Kubernetes' controllers are made to try again what they were
// refused. Nothing that we watch tells that the cause is fixed. By itself, the
// controller of ReplicaSets pauses for up to 17 minutes, and that of Deployments gives
// up after three minutes.
const refusalRetry = time.Minute

// RetryAt is when to make a Deployment's pods be tried again; zero if none is refused.
func RetryAt(d *appsv1.Deployment) time.Time {
	c := RefusalOf(d)
	if c == nil {
		return time.Time{}
	}
	last := c.LastTransitionTime.Time
	if t, err := time.Parse(time.RFC3339, d.Annotations[bergv1.AnnotationRetriedAt]); err == nil && t.After(last) {
		last = t
	}
	return last.Add(refusalRetry)
}

// UntilRetry is how long it is until pods that were refused are to be tried again, zero
// if there are none.
func UntilRetry(o Observed, now time.Time) time.Duration {
	var wait time.Duration
	for _, d := range o.Deployments {
		at := RetryAt(d)
		if at.IsZero() {
			continue
		}
		until := at.Sub(now)
		if until <= 0 {
			until = refusalRetry // it is being tried in this pass
		}
		wait = Sooner(wait, until)
	}
	return wait
}

// Sooner returns the shorter of two waits, of which zero is for ever.
func Sooner(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return cmp.Or(a, b)
	}
	return min(a, b)
}
