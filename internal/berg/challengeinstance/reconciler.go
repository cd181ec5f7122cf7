package challengeinstance

import (
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/access"
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
	// Starts is the client of the worker that starts instances. Its lists wait for its own writes, not for writes of other
	// workers.
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
	// Namespace is the operator's own. It holds the pull secret and the stored contents.
	Namespace string
	// Presence records which kinds the API server lacks; Client, Live and Writer use it. Direct reads from the API server
	// without it, to find out whether a missing kind is served by now.
	Presence *optional.Presence
	Direct   client.Reader
	// Isolation is whether the cluster enforces network policies.
	Isolation *isolation.Latest
	// Recorder stores records of instances that end. Nil: no record is stored.
	Recorder Recorder
	// PodAccess is the right to notify pods of prepared instances of their flag. Nil: no instance is prepared.
	PodAccess *access.Access
	// Revisions stores the contents that instances were started with.
	Revisions *revisions.Store[manifests.Snapshot]
	// Reach connects to instances before they are Running. Nil: no connection is tried.
	Reach *reach.Waiter

	kind         *kind
	gateways     gateways
	images       digests.Latest
	tokens       ownership.Tokens
	former       formerPolicies
	terminations terminations
	// enqueue adds a request to the queue of the controller.
	enqueue func(ctrl.Request)
	// enqueueReady adds a request with the highest priority: only the write that makes the instance Running is missing.
	enqueueReady func(ctrl.Request)
	// copies are the versions of the pull secret that instances being built have under its own name. If a version is
	// missing here, as after a restart, the operator writes another copy.
	copies *lru.Cache
	// granted are the UIDs of the namespaces in which this process has made sure of PodAccess.
	granted *lru.Cache
}

// kind is the frame of a reconciliation.
type kind = reconcile.Kind[*bergv1.ChallengeInstance, status.Outcome]
