package reconcile

import (
	"context"
	"errors"
	"time"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// Timeout bounds one reconciliation, should the API server not answer: it is the
// ReconciliationTimeout of a controller.
const Timeout = time.Minute

// ErrDeferred is returned by a Func that did nothing and has arranged that its request
// comes again. Such a reconciliation is not counted, and the backoff of the resource stays as it is.
var ErrDeferred = errors.New("the request comes again by itself")

// Func makes one reconciliation. It returns the time after which the clock alone will change
// something, zero for never, and an error of a kind that outcome.Backoff distinguishes.
type Func func(context.Context, ctrl.Request) (requeueAfter time.Duration, err error)

// New returns the reconciler of a controller: it measures and counts the reconciliations of do,
// chooses the delays between them, and ends them in order when the operator stops. Do
// calls backoff.Meet with the resource that it has read. The reconciler returns no errors,
// for the queue would choose the delay after one.
func New(now clock.PassiveClock, backoff *outcome.Backoff, metrics *Metrics, do Func) reconcile.Reconciler {
	return Drain(metrics, reconcile.Func(func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
		began := now.Now()
		requeueAfter, err := do(ctx, req)
		if errors.Is(err, ErrDeferred) {
			return ctrl.Result{}, nil
		}
		result, failed := backoff.Result(ctx, req, requeueAfter, err)
		metrics.observe(now.Since(began), failed)
		return result, nil
	}))
}
