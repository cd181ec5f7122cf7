package reconcile

import (
	"context"
	"errors"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// DrainTime is how long a reconciliation may continue once the operator is asked to stop. A usual reconciliation takes
// milliseconds. The time covers an API server that answers slowly, and ends before the kubelet kills the pod after the grace
// period of 30 seconds in config/manager/manager.yaml.
const DrainTime = 15 * time.Second

// Drain returns a reconciler that completes a started reconciliation of next when the operator is
// asked to stop: an operator that is killed may stop at any line, a drained one between
// reconciliations. It counts a panic as an error of metrics, and does not recover from it. New
// includes it.
func Drain(metrics *Metrics, next reconcile.Reconciler) reconcile.Reconciler {
	return drained{next, metrics}
}

type drained struct {
	reconcile.Reconciler
	metrics *Metrics
}

// Reconcile reconciles in a context that outlives ctx by DrainTime when ctx is
// cancelled. A deadline of ctx holds as it is.
func (d drained) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if ctx.Err() != nil {
		return ctrl.Result{}, nil // the process is ending: no new reconciliation is started
	}
	defer func() {
		if panicked := recover(); panicked != nil {
			d.metrics.Failed()
			panic(panicked)
		}
	}()
	// The reconciliation keeps the values of ctx but not its cancellation: a write that is half done should finish
	// before the lease is released to the next leader.
	working, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		// ctx ends by its deadline or because the process is asked to stop: only a stop grants DrainTime.
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
