package application

import (
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kibaship/secrets"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// Reconciler checks Applications.
type Reconciler struct {
	// Client reads from the cache, which must wait for the client's own writes.
	Client client.Client
	Events events.EventRecorder
	Clock  clock.PassiveClock
	// Secrets knows which Secrets there are.
	Secrets *secrets.Watches
	// Workers is how many Applications are worked on at the same time.
	Workers int

	kind *reconcile.Kind[*kibashipv1.Application, Observed]
}

// secretsUser is the name under which this package watches Secrets.
const secretsUser = "application"
