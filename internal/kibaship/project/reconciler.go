package project

import (
	"context"

	rbacv1 "k8s.io/api/rbac/v1"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/admissionpolicy"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// Reconciler creates, repairs and deletes Projects.
type Reconciler struct {
	reconcile.Access
	Config config.KibaShip
	// Identity returns who the operator is to the API server.
	Identity func(context.Context) (rbacv1.Subject, error)
	// Policies are the admission policies that Projects rely on.
	Policies Policies

	kind   *reconcile.Kind[*kibashipv1.Project, State]
	tokens ownership.Tokens
}

// Policies are the admission policies that Projects rely on. While one is missing, the operator gives no rights: what RBAC grants
// is more than it may be used for.
type Policies struct {
	// Fence limits where the operator may bind roles.
	Fence *admissionpolicy.Policy
	// Tenants keeps accounts of a Project from taking its namespace.
	Tenants *admissionpolicy.Policy
	// Confined keeps pods confined until their end, in Projects with a network policy.
	Confined *admissionpolicy.Policy
}
