package challenge

import (
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/internal/berg/rules"
	"github.com/bergctf/berg-operator/internal/config"
)

// Reconciler checks Challenges.
type Reconciler struct {
	// Client reads from the cache, which must wait for the client's own writes.
	Client client.Client
	Events events.EventRecorder
	Clock  clock.PassiveClock
	// Config says whether nodes are watched.
	Config config.Challenge
	Rules  rules.Settings
	// Workers is how many Challenges are checked concurrently.
	Workers int
}
