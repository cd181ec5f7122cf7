package prepull

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// Reconciler has images pulled before players need them.
type Reconciler struct {
	reconcile.Access
	// Live reads from the API server: the pull secret.
	Live   client.Reader
	Config config.Berg
	// Namespace is the namespace of the operator, which has the pull secret.
	Namespace string

	backoff *outcome.Backoff
	// store belongs to the one worker.
	store *store
}
