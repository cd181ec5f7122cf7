package status

import (
	"cmp"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/kit/refusal"
)

// Controllers of Kubernetes create the pods of a Deployment. The API server may accept the Deployment and reject their
// requests: a pod because of a quota, Pod Security or a RuntimeClass, a ReplicaSet because of a quota. Only the status of
// the Deployment shows this.

// replicaSetCreateError is the reason of a Deployment for which no ReplicaSet can be created.
const replicaSetCreateError = "ReplicaSetCreateError"

// Refusal reports whether a condition says that the API server rejects the pods of a
// Deployment. A Deployment that progresses has none.
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

// FindRefusal returns why the pods of a Deployment are not created, nil if no reason is known.
// If the ReplicaSet cannot be created, a failure of an earlier ReplicaSet is out of date.
func FindRefusal(d *appsv1.Deployment) *appsv1.DeploymentCondition {
	var found *appsv1.DeploymentCondition
	if d == nil {
		return nil
	}
	for i, c := range d.Status.Conditions {
		if Refusal(c) && (found == nil || c.Type == appsv1.DeploymentProgressing) {
			found = &d.Status.Conditions[i]
		}
	}
	return found
}

// SameRefusal reports whether the pods of a Deployment are refused for the same reason as before, or neither time.
func SameRefusal(before, after *appsv1.Deployment) bool {
	b, a := FindRefusal(before), FindRefusal(after)
	return (b == nil) == (a == nil) && (b == nil || b.Message == a.Message)
}

// ExplainRefusal returns why the pods of a Deployment are not created; "" if that is not known, or usual in a new namespace.
func ExplainRefusal(d *appsv1.Deployment, now time.Time) (reason, message string) {
	refused := FindRefusal(d)
	if refused == nil {
		return "", ""
	}
	message = refusal.Annotate(refused.Message)
	switch meaning, _ := refusal.Explain(refused.Message); meaning.Kind {
	case refusal.ServiceAccount: // Kubernetes makes it a moment after the namespace
		if now.Sub(refused.LastTransitionTime.Time) < refusalRetry {
			return "", ""
		}
		return bergv1.ReasonWriteFailed, message
	case refusal.Trouble, refusal.Storage, refusal.Certificate:
		return bergv1.ReasonWriteFailed, message
	}
	return bergv1.ReasonRefused, message
}

// refusalRetry is the interval at which the controllers of Kubernetes are triggered to create
// rejected pods again. No watched object shows that the cause is fixed. Without a trigger, the
// ReplicaSet controller waits for up to 17 minutes, and the Deployment controller gives up
// after three minutes.
const refusalRetry = time.Minute

// RetryAt is when to trigger the creation of the pods of a Deployment again; zero if none is
// rejected.
func RetryAt(d *appsv1.Deployment) time.Time {
	c := FindRefusal(d)
	if c == nil {
		return time.Time{}
	}
	last := c.LastTransitionTime.Time
	if t, err := time.Parse(time.RFC3339, d.Annotations[bergv1.AnnotationRetriedAt]); err == nil && t.After(last) {
		last = t
	}
	return last.Add(refusalRetry)
}

// UntilRetry is the time until RetryAt of the first Deployment, zero if no pod is rejected.
func UntilRetry(o Observed, now time.Time) time.Duration {
	var wait time.Duration
	for _, d := range o.Deployments {
		retry := RetryAt(d)
		if retry.IsZero() {
			continue
		}
		until := retry.Sub(now)
		if until <= 0 {
			until = refusalRetry // this reconciliation triggers it
		}
		wait = Sooner(wait, until)
	}
	return wait
}

// Sooner returns the shorter of two waiting times; zero means never.
func Sooner(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return cmp.Or(a, b)
	}
	return min(a, b)
}
