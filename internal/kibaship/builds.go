package kibaship

import (
	"context"
	"os"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kibaship/deployment"
	"github.com/bergctf/berg-operator/internal/kibaship/registry"
	"github.com/bergctf/berg-operator/internal/kibaship/secrets"
	"github.com/bergctf/berg-operator/internal/kit/family"
)

// setupDeployments adds the controller of Deployments.
func setupDeployments(ctx context.Context, site family.Site, names *secrets.Watches, cfg config.KibaShip) error {
	mgr := site.Manager
	// The kubelet names a container's host after its pod.
	pod, err := os.Hostname()
	if err != nil {
		return err
	}
	return (&deployment.Reconciler{
		Client:   mgr.GetClient(),
		Writer:   site.Writer,
		Events:   mgr.GetEventRecorder("kibaship-operator"),
		Clock:    site.Clock,
		Jumps:    site.Jumps,
		Config:   cfg,
		Presence: site.Presence,
		Direct:   site.Direct,
		Reach:    registry.Public,
		Pod:      client.ObjectKey{Namespace: site.Namespace, Name: pod},
		Secrets:  names,
		Workers:  site.Workers,
	}).SetupWithManager(ctx, mgr)
}
