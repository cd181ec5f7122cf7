package check

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// Reconciler runs ChallengeChecks.
type Reconciler struct {
	reconcile.Access
	// Live reads from the API server: the pull secret, and routes when players cannot get through.
	Live   client.Reader
	Config config.Berg
	// Policies returns the kinds of policy that instances are given now.
	Policies func(context.Context) config.NetworkPolicy
	// Namespace is the namespace of the operator, which has the pull secret.
	Namespace string

	kind   *reconcile.Kind[*bergv1.ChallengeCheck, state]
	tokens ownership.Tokens
	// The one worker alone uses the fields below.
	refusals refusals
	builds   refusedBuilds
	// named is the instance that the status last named as waiting for capacity.
	named types.NamespacedName
	// queueChanged brings an event when waiting checks may begin.
	queueChanged chan event.GenericEvent
}

// state is what one reconciliation observed of a ChallengeCheck and did for it.
type state struct {
	Observed
	// Reason and Message say why no check is running; empty if one is, or begins.
	Reason, Message string
	// Proof is the digest of the token with which this process can create the namespace of a check that begins; empty if none does.
	Proof string
	// Assessment of a check that is running.
	Assessment Assessment
	// Gone: nothing is left of a check that has ended.
	Gone bool
	// Again is when the reconciliation is repeated, zero for never.
	Again time.Duration
}
