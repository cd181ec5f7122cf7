package tunnelproxy

import (
	"sync"

	"k8s.io/client-go/kubernetes"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/identity"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
	"github.com/bergctf/berg-operator/internal/tunnel/jobs"
	"github.com/bergctf/berg-operator/internal/tunnel/tunnelproxy/backend"
	"github.com/bergctf/berg-operator/internal/tunnel/tunnelproxy/credentials"
	"github.com/bergctf/berg-operator/internal/tunnel/tunnelproxy/status"
	"github.com/bergctf/berg-operator/internal/tunnel/tunnelproxy/tunnelsync"
)

// Reconciler makes, watches and deletes pairs of proxies.
type Reconciler struct {
	reconcile.Access
	Config config.Tunnel
	// Namespace of the operator.
	Namespace string
	// Images builds images. Nil: there is no registry.
	Images Images
	// Own finds the operator's own image, which includes the program.
	Own *identity.ImageFinder
	// Logs reads the logs of server proxies in pods.
	Logs kubernetes.Interface

	kind        *reconcile.Kind[*tunnelv1.ContainerNetworkTunnelProxy, status.Outcome]
	jobs        *jobs.Runner
	backends    backend.Backends
	credentials *credentials.Store
	hostPorts   hostPorts
	traffic     *tunnelsync.Traffic
	// tidied are the Failed pairs of which nothing is left, by UID.
	tidied sync.Map
}
