package gate

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/google/uuid"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// renewDeadline is how long a replica tries to renew its lease. Statuses may wait for a new leader; connections do not depend on it.
const renewDeadline = 10 * time.Second

func newLock(rc *rest.Config, config Config) (resourcelock.Interface, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("get the host name for the identity of this replica: %w", err)
	}
	lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, config.Namespace, config.LeaseName,
		resourcelock.ResourceLockConfig{Identity: host + "_" + uuid.NewString()}, rc, renewDeadline)
	if err != nil {
		return nil, fmt.Errorf("prepare the lease %s/%s: %w", config.Namespace, config.LeaseName, err)
	}
	return lock, nil
}

// elect calls lead while this replica has the lease. A replica that cannot renew it, because the API server does not answer, tries to get it
// again: it must not end, since a new process could not read the routes.
func elect(ctx context.Context, lock resourcelock.Interface, renew time.Duration, lead func(context.Context)) error {
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: 3 * renew / 2, RenewDeadline: renew, RetryPeriod: renew / 5, ReleaseOnCancel: true, Name: lock.Describe(),
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: lead, OnStoppedLeading: func() {}},
	})
	if err != nil {
		return fmt.Errorf("prepare the lease %s: %w", lock.Describe(), err)
	}
	for ctx.Err() == nil {
		elector.Run(ctx)
	}
	return nil
}
