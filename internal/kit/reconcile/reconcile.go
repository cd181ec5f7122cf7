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

// ErrDeferred is returned by a Func that did nothing, because another event will enqueue its request.
// Such a reconciliation is not counted, and the backoff of the resource stays as it is.
var ErrDeferred = errors.New("another event will enqueue the request")

// Func makes one reconciliation. It returns after how long time alone will change something, zero
// for never, and its failure, which outcome.Backoff understands.
type Func func(context.Context, ctrl.Request) (requeueAfter time.Duration, err error)

// New returns the reconciler of a controller: it measures and counts the reconciliations of do, chooses the delays between
// them, and ends them in order when the operator stops. The function do must call backoff.ResetIfReplaced with the resource
// that it has read. The reconciler returns no errors, because the queue would choose the delay after one.
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
