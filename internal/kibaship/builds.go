package kibaship

import (
	"context"
	"os"

	clientcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kibaship/deployment"
	"github.com/bergctf/berg-operator/internal/kibaship/secrets"
	"github.com/bergctf/berg-operator/internal/kit/family"
	"github.com/bergctf/berg-operator/internal/kit/identity"
)

// setupDeployments adds the controller of Deployments.
func setupDeployments(ctx context.Context, deps family.Dependencies, names *secrets.Watches, cfg config.KibaShip) error {
	mgr := deps.Manager
	// The kubelet names a container's host after its pod.
	pod, err := os.Hostname()
	if err != nil {
		return err
	}
	starts, err := deps.NewClient()
	if err != nil {
		return err
	}
	logs, err := clientcorev1.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	return (&deployment.Reconciler{
		Access:   deps.Access("kibaship-operator"),
		Config:   cfg,
		Presence: deps.Presence,
		Direct:   deps.Direct,
		Own:      &identity.ImageFinder{Reader: deps.Writer.Live, Pod: client.ObjectKey{Namespace: deps.Namespace, Name: pod}},
		Logs:     logs,
		Secrets:  names,
		Starts:   starts,
	}).SetupWithManager(ctx, mgr)
}
