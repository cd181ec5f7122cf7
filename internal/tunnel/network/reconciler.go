package network

import (
	"context"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/admissionpolicy"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// Reconciler makes, watches and deletes networks.
type Reconciler struct {
	// Client reads from the cache, which must wait for the client's own writes.
	Client client.Client
	// Writer writes everything that belongs to a network.
	Writer apply.Writer
	Events events.EventRecorder
	Clock  clock.PassiveClock
	// Fence limits where the operator may bind its rights for tunnels. Confined keeps pods confined until their end. While one is
	// missing, no further network is made.
	Fence, Confined *admissionpolicy.Policy
	Config          config.Tunnel
	// Identity returns the operator's account, which is bound in the namespaces of networks.
	Identity func(context.Context) (rbacv1.Subject, error)
	// Workers is how many networks are reconciled at the same time.
	Workers int

	kind       *reconcile.Kind[*tunnelv1.ContainerNetwork, Observed]
	containers *containers
	tokens     ownership.Secrets
}
