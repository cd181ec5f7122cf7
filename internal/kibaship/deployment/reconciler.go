package deployment

import (
	"sync"

	clientcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kibaship/secrets"
	"github.com/bergctf/berg-operator/internal/kit/identity"
	"github.com/bergctf/berg-operator/internal/kit/optional"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// Reconciler builds what Deployments ask for.
type Reconciler struct {
	reconcile.Access
	Config config.KibaShip
	// Presence knows whether Tekton is installed, and Direct reads past it.
	Presence *optional.Presence
	Direct   client.Reader
	// Starts makes the runs. Its lists wait for these alone, and not for other writes.
	Starts client.Client
	// Own finds the operator's own image, which pushes unless the settings name another one.
	Own *identity.ImageFinder
	// Logs reads the log of a build that failed.
	Logs clientcorev1.PodsGetter
	// Secrets tells when a Secret comes or goes.
	Secrets *secrets.Watches

	kind *reconcile.Kind[*kibashipv1.Deployment, Outcome]
	// starting is held from counting the builds under way until another one is stored.
	starting sync.Mutex
}

// secretsUser is the name under which this package watches Secrets.
const secretsUser = "deployment"
