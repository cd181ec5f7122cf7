package operator

import (
	"context"
	"time"

	operatorsv2 "github.com/operator-framework/api/pkg/operators/v2"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/family"
	"github.com/bergctf/berg-operator/internal/operator/upgradeable"
)

// upgradeSettle is how long nothing must be created or removed before an upgrade
// may begin: players start instances in groups.
const upgradeSettle = 30 * time.Second

// busyFamily is the work that an upgrade waits for, and the cache that shows it.
type busyFamily struct {
	family.Busy
	cache cache.Cache
}

// addGate adds a gate to the manager that delays an upgrade by OLM while a family is busy.
func addGate(ctx context.Context, mgr ctrl.Manager, process config.Process, families []servedFamily, clk clock.PassiveClock) error {
	var busy []busyFamily
	for _, f := range families {
		if f.Busy.Kind != nil {
			busy = append(busy, busyFamily{f.Busy, f.dependencies.Manager.GetCache()})
		}
	}
	// A separate client, because its reads must not come from the caches.
	scheme := runtime.NewScheme()
	if err := operatorsv2.AddToScheme(scheme); err != nil {
		return err
	}
	direct, err := client.New(mgr.GetConfig(), client.Options{Scheme: scheme, HTTPClient: mgr.GetHTTPClient()})
	if err != nil {
		return err
	}
	gate := &upgradeable.Gate{
		Key:    client.ObjectKey{Namespace: process.Namespace, Name: process.OperatorConditionName},
		Client: direct,
		Work: func(ctx context.Context) ([]time.Time, error) {
			var all []time.Time
			for _, b := range busy {
				since, err := b.Since(ctx, b.cache)
				if err != nil {
					return nil, err
				}
				all = append(all, since...)
			}
			return all, nil
		},
		Bounds:   upgradeable.Bounds{Hold: process.UpgradeHoldMax, Settle: upgradeSettle},
		Clock:    clk,
		ShutDown: func() bool { return ctx.Err() != nil },
	}
	for _, b := range busy {
		gate.Watched = append(gate.Watched, upgradeable.Watched{Informers: b.cache, Kind: b.Kind})
	}
	return mgr.Add(gate)
}
