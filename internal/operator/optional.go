package operator

import (
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/internal/kit/optional"
)

// guardedManager hands out readers of the API server that know which kinds are missing, as
// its client does. What goes past them has to be asked for by name.
type guardedManager struct {
	ctrl.Manager
	live client.Reader
}

func newGuardedManager(mgr ctrl.Manager, presence *optional.Presence) guardedManager {
	return guardedManager{Manager: mgr, live: presence.Reader(mgr.GetAPIReader(), mgr.GetClient().GroupVersionKindFor)}
}

func (m guardedManager) GetAPIReader() client.Reader { return m.live }
