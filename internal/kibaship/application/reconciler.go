package application

import (
	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kibaship/hook"
	"github.com/bergctf/berg-operator/internal/kibaship/poll"
	"github.com/bergctf/berg-operator/internal/kibaship/secrets"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// Reconciler checks Applications.
type Reconciler struct {
	reconcile.Access
	// Secrets knows which Secrets there are.
	Secrets *secrets.Watches
	Config  config.KibaShip
	// Poller knows the newest commits of repositories.
	Poller *poll.Poller
	// Keys has the key of the secrets of webhooks.
	Keys *hook.Keys

	kind *reconcile.Kind[*kibashipv1.Application, Observed]
}

// secretsUser is the name under which this package watches Secrets.
const secretsUser = "application"
