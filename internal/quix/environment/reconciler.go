package environment

import (
	"sync"

	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/admissionpolicy"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// Reconciler creates, repairs and deletes Environments.
type Reconciler struct {
	reconcile.Access
	// Fence limits the right to bind to namespaces of environments. Without it nothing is bound.
	Fence  *admissionpolicy.Policy
	Config config.Quix

	kind   *reconcile.Kind[*quixv1.Environment, State]
	tokens ownership.Tokens
	// live has the UID of each environment that this process saw before its deletion, by its key.
	live sync.Map
}
