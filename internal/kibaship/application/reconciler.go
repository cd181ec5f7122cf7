package application

import (
	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kibaship/secrets"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// Reconciler checks Applications.
type Reconciler struct {
	reconcile.Access
	// Secrets knows which Secrets there are.
	Secrets *secrets.Watches

	kind *reconcile.Kind[*kibashipv1.Application, Observed]
}

// secretsUser is the name under which this package watches Secrets.
const secretsUser = "application"
