package status

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/config"
)

// Candidate is an instance and what it is to be built from.
type Candidate struct {
	Instance *bergv1.ChallengeInstance
	// Key is where the instance's Challenge is looked for.
	Key types.NamespacedName
	// Challenge is nil when it does not exist.
	Challenge *bergv1.Challenge
	// Pinned is what the instance was started with; nil before the start.
	Pinned *manifests.Snapshot
}

// Observed is everything that decides what happens to an instance.
type Observed struct {
	Candidate
	// Policies are the kinds of network policy that isolate the instance from this pass on:
	// NetworkPolicyAuto is resolved.
	Policies config.NetworkPolicy
	// Namespace is that of the owner, nil when it does not exist.
	Namespace *corev1.Namespace
	// Holder is the other instance of the same owner to which that namespace belongs, nil
	// when there is none.
	Holder *bergv1.ChallengeInstance
	// Ahead is, of the other instances of the same owner that can be built and go before
	// this one, the last: nil when this one goes first.
	Ahead *bergv1.ChallengeInstance
	// Deployments of the instance by container, as they were before the pass. Of their
	// status there is what refusalOf looks at.
	Deployments map[string]*appsv1.Deployment
	// Pods of the instance.
	Pods []corev1.Pod
	// Bounded: there is a bound on the number of instances, within which it may start.
	Bounded bool
	// Sandboxes are why the runtime refuses those of pods, by UID.
	Sandboxes map[types.UID]string
}

// containers are those that the instance runs, or would.
func (c Candidate) containers() []bergv1.Container {
	if c.Pinned != nil {
		return c.Pinned.Containers
	}
	return manifests.SnapshotOf(c.Challenge).Containers
}

// Withdrawn reports whether an instance outlives its Challenge: it does not need
// the Challenge any more, but says that it is gone.
func Withdrawn(c Candidate) bool { return c.Pinned != nil && c.Challenge == nil }
