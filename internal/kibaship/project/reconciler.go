package project

import (
	"context"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/admissionpolicy"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// Reconciler creates, repairs and deletes Projects.
type Reconciler struct {
	// Client reads from the cache, which must wait for the client's own writes.
	Client client.Client
	// Writer writes what belongs to a Project.
	Writer apply.Writer
	Events events.EventRecorder
	Clock  clock.PassiveClock
	Config config.KibaShip
	// Identity returns who the operator is to the API server.
	Identity func(context.Context) (rbacv1.Subject, error)
	// Policies are the admission policies that Projects rely on.
	Policies Policies
	// Workers is how many Projects are worked on at the same time.
	Workers int

	kind   *reconcile.Kind[*kibashipv1.Project, State]
	tokens ownership.Secrets
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
