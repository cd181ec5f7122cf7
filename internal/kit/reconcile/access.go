package reconcile

import (
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/bergctf/berg-operator/internal/kit/apply"
)

// Access is how a reconciler reaches the cluster. All fields are required.
type Access struct {
	// Client reads from the cache, which must wait for the client's own writes.
	Client client.Client
	// Writer writes what belongs to a resource.
	Writer apply.Writer
	Events events.EventRecorder
	Clock  clock.PassiveClock
	// Workers is how many resources of a Kind are reconciled at the same time.
	Workers int
}

// ControllerOptions returns the options of the controller of a Kind.
func (a Access) ControllerOptions() controller.Options {
	return controller.Options{MaxConcurrentReconciles: a.Workers, ReconciliationTimeout: Timeout}
}
