package challengeinstance

import (
	"context"
	"errors"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// DrainTime is how long a reconciliation may go on once the operator is asked to
// stop.
const DrainTime = 15 * time.Second

// drained brings to its end what is under way when the operator is asked to stop.
// An operator that is killed may leave off anywhere; this one need not.
type drained struct {
	reconcile.Reconciler
}

// Reconcile reconciles in a context that outlives ctx by DrainTime when ctx is
// cancelled. A deadline of ctx holds as it is.
func (d drained) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if ctx.Err() != nil {
		return ctrl.Result{}, nil // nothing new is begun
	}
	defer func() {
		if defect := recover(); defect != nil {
			reconcileErrors.Inc()
			panic(defect)
		}
	}()
	working, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		if errors.Is(ctx.Err(), context.Canceled) {
			end := time.NewTimer(DrainTime)
			defer end.Stop()
			select {
			case <-end.C:
			case <-working.Done():
			}
		}
		cancel()
	})
	defer stop()
	return d.Reconciler.Reconcile(working, req)
}
