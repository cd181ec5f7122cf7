package environment

import (
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/admissionpolicy"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// Reconciler creates, repairs and deletes Environments.
type Reconciler struct {
	// Client reads from the cache, which must wait for the client's own writes.
	Client client.Client
	// Writer writes what belongs to an environment.
	Writer apply.Writer
	Events events.EventRecorder
	Clock  clock.PassiveClock
	// Fence limits the right to bind to namespaces of environments. Without it nothing is bound.
	Fence  *admissionpolicy.Policy
	Config config.Quix
	// Workers is how many environments are reconciled concurrently.
	Workers int

	kind   *reconcile.Kind[*quixv1.Environment, State]
	tokens ownership.Secrets
}
