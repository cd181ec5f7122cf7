package retention

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// Reconciler deletes images of Applications that nothing needs.
type Reconciler struct {
	reconcile.Access
	Config config.KibaShip
	// Live reads from the API server.
	Live client.Reader

	backoff *outcome.Backoff
}
