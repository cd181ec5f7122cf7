package prepull

import (
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// Reconciler has images pulled before players need them.
type Reconciler struct {
	// Client reads from the cache, which must wait for the client's own writes.
	Client client.Client
	// Live reads from the API server: the pull secret.
	Live client.Reader
	// Manager is who writes.
	Manager string
	Events  events.EventRecorder
	Clock   clock.PassiveClock
	Config  config.Berg
	// Namespace is that of the operator, where the pull secret is.
	Namespace string

	backoff *outcome.Backoff
	// store belongs to the one worker.
	store *store
}
