package check

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// Observed is everything that decides what happens to a ChallengeCheck.
type Observed struct {
	Check *bergv1.ChallengeCheck
	// Challenge is nil where it does not exist.
	Challenge *bergv1.Challenge
	// Contenders are all ChallengeChecks, this one among them.
	Contenders []contender
	// RefusedUntil is until when others go first, because the API server refused to let this check
	// begin; zero if it did not.
	RefusedUntil time.Time
	// Players are the instances of players that wait for capacity.
	Players players

	// The objects of the running check; nil if they do not exist.
	Instance *bergv1.ChallengeInstance
	// Unready are the containers of the instance that run and are not ready, while nothing else is
	// known to keep it from starting.
	Unready   []string
	Namespace *corev1.Namespace
	Job       *batchv1.Job
	Pods      []corev1.Pod
	// PodRefused is why the API server refuses the pod of the solver, as an event says it; "" if it does not, or if that is not known yet.
	PodRefused string
	// Conflicting names an object that has the name of one of these and is not owned by the check.
	Conflicting string
}
