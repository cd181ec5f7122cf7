package operator

import (
	"context"
	"time"

	operatorsv2 "github.com/operator-framework/api/pkg/operators/v2"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/upgradeable"
)

// upgradeSettle is how long nothing must be created or removed before an upgrade
// may begin: players of an event come in groups.
const upgradeSettle = 30 * time.Second

// newGate returns what holds up an upgrade by OLM while instances are being
// created or removed.
func newGate(ctx context.Context, mgr ctrl.Manager, cfg config.Config, clk clock.PassiveClock) (*upgradeable.Gate, error) {
	// A client of its own, because nothing of it may come from the caches.
	scheme := runtime.NewScheme()
	if err := operatorsv2.AddToScheme(scheme); err != nil {
		return nil, err
	}
	direct, err := client.New(mgr.GetConfig(), client.Options{Scheme: scheme, HTTPClient: mgr.GetHTTPClient()})
	if err != nil {
		return nil, err
	}
	return &upgradeable.Gate{
		Key:       client.ObjectKey{Namespace: cfg.Challenge.OperatorNamespace, Name: cfg.Process.OperatorConditionName},
		Client:    direct,
		Informers: mgr.GetCache(),
		Kind:      &bergv1.ChallengeInstance{},
		Work: func(ctx context.Context) ([]time.Time, error) {
			var instances bergv1.ChallengeInstanceList
			if err := mgr.GetCache().List(ctx, &instances, client.UnsafeDisableDeepCopy); err != nil {
				return nil, err
			}
			var work []time.Time
			for i := range instances.Items {
				if began, ok := inTransition(&instances.Items[i]); ok {
					work = append(work, began)
				}
			}
			return work, nil
		},
		Bounds:   upgradeable.Bounds{Hold: cfg.Process.UpgradeHoldMax, Settle: upgradeSettle},
		Clock:    clk,
		ShutDown: func() bool { return ctx.Err() != nil },
	}, nil
}

// inTransition tells since when somebody waits for the operator to build an
// instance or to take it away. A Failed one waits for somebody else.
func inTransition(i *bergv1.ChallengeInstance) (began time.Time, ok bool) {
	if !i.DeletionTimestamp.IsZero() {
		return i.DeletionTimestamp.Time, true
	}
	switch i.Status.Phase {
	case "", bergv1.PhasePending, bergv1.PhaseCreating, bergv1.PhaseStarting:
		if i.Status.StartedAt != nil {
			return i.Status.StartedAt.Time, true
		}
		return i.CreationTimestamp.Time, true
	default:
		return time.Time{}, false
	}
}
