package challenge

import (
	"context"
	"sync/atomic"

	"sigs.k8s.io/controller-runtime/pkg/client"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// Publisher sends one message and returns when the broker has acknowledged it, or why not.
type Publisher interface {
	// Publish sends value under key to the topic of state changes. It returns within the sender's own deadline, in
	// every state of the broker.
	Publish(ctx context.Context, key string, value []byte) error
}

// Reconciler creates, repairs and deletes challenges.
type Reconciler struct {
	reconcile.Access
	Config config.HexaCTF
	// Publisher sends messages. Nil: there are none.
	Publisher Publisher
	// Namespace is the operator's.
	Namespace string
	// Reason turns an error of Publisher into the text of a condition.
	Reason func(error) string

	kind       *reconcile.Kind[*hexactfv1.Challenge, Outcome]
	queue      delayedQueue
	deliveries deliveries
	endings    *endings
	// expiring counts the requests in progress that delete expired challenges.
	expiring atomic.Int32
}

func newChallenge() *hexactfv1.Challenge { return &hexactfv1.Challenge{} }

func listChallenges() client.ObjectList { return &hexactfv1.ChallengeList{} }

func (r *Reconciler) inputs(o Observed) Inputs {
	return Inputs{
		UID:      o.Challenge.UID,
		Name:     client.ObjectKeyFromObject(o.Challenge),
		Identity: challengeIdentity(o.Challenge),
		Snapshot: *o.Started,
		Endpoint: o.Challenge.Status.Endpoint,
		Config:   r.Config,
	}
}
