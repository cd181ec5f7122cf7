package challengeinstance

import (
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
	"github.com/bergctf/berg-operator/internal/berg/digests"
	"github.com/bergctf/berg-operator/internal/berg/isolation"
	"github.com/bergctf/berg-operator/internal/berg/reach"
	"github.com/bergctf/berg-operator/internal/berg/revisions"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/optional"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// Reconciler builds, watches and terminates ChallengeInstances.
type Reconciler struct {
	// Client reads from the cache, which must wait for the client's own writes.
	Client client.Client
	// Starts is the client of the worker that starts instances: its lists wait for its own writes, not for those of others.
	Starts client.Client
	// Live reads from the API server.
	Live client.Reader
	// Writer writes everything that belongs to an instance.
	Writer apply.Writer
	Events events.EventRecorder
	Clock  clock.PassiveClock
	Config config.Berg
	// Workers is how many instances are built at the same time.
	Workers int
	// Namespace is the operator's own: the pull secret is read from there.
	Namespace string
	// Presence is what Client, Live and Writer know missing kinds by. Direct reads from the
	// API server past it, to find out whether a kind is there by now.
	Presence *optional.Presence
	Direct   client.Reader
	// Isolation is whether the cluster enforces network policies.
	Isolation *isolation.Latest
	// Recorder keeps something of instances that end. Nil: nothing is.
	Recorder Recorder
	// Revisions keep what instances were started with.
	Revisions *revisions.Store[manifests.Snapshot]
	// Reach connects to instances before they are Running. Nil: nothing does.
	Reach *reach.Waiter

	kind         *kind
	images       digests.Latest
	tokens       ownership.Secrets
	former       formerPolicies
	terminations terminations
	// enqueue adds a request to the queue of the controller.
	enqueue func(ctrl.Request)
	// enqueueReady does it for one of which only the write is missing that makes it Running.
	enqueueReady func(ctrl.Request)
	// copies are the versions of the pull secret that instances being built have under
	// its own name. What is forgotten here, or by a restart, is copied once more.
	copies *lru.Cache
}

// kind is the frame of a reconciliation.
type kind = reconcile.Kind[*bergv1.ChallengeInstance, status.Outcome]
