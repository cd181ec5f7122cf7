package challenge

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// Observed is everything that decides what happens to a live challenge.
type Observed struct {
	Challenge *hexactfv1.Challenge
	// Inherited: another operator has started the challenge. It keeps running untouched, expires, and its end is
	// reported. What it should consist of is not known.
	Inherited bool
	// Started is what the challenge was started with; nil before the start.
	Started *Snapshot
	// Definition is nil where it does not exist, and once the challenge was started.
	Definition *hexactfv1.ChallengeDefinition
	// Deployments of the components, in their order, after the writes; nil for one that does not exist.
	Deployments []*appsv1.Deployment
	// Pods of the challenge, where not all Deployments are available.
	Pods []corev1.Pod
}

// Outcome is what one reconciliation observed and did, and all that a status is computed from.
type Outcome struct {
	Observed
	// Problem is what stopped it; nil when every object is in place.
	Problem *outcome.Problem
	// Endpoint is the node port of the exposed component, 0 where there is none, or it is not known.
	Endpoint int32
	// Delivery is the state of the messages.
	Delivery Delivery
}

// isOver reports whether no container of a pod runs or ever will.
func isOver(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}
