package network

import (
	"context"

	rbacv1 "k8s.io/api/rbac/v1"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/admissionpolicy"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// Reconciler makes, watches and deletes networks.
type Reconciler struct {
	reconcile.Access
	// Fence limits where the operator may bind its rights for tunnels. Confined keeps pods confined until their end. While one is
	// missing, no further network is made.
	Fence, Confined *admissionpolicy.Policy
	Config          config.Tunnel
	// Identity returns the operator's account, which is bound in the namespaces of networks.
	Identity func(context.Context) (rbacv1.Subject, error)

	kind       *reconcile.Kind[*tunnelv1.ContainerNetwork, Observed]
	containers *containers
	tokens     ownership.Tokens
}
