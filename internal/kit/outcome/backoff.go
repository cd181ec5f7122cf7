package outcome

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// The pauses between attempts.
	firstPause   = 100 * time.Millisecond
	longestPause = time.Minute
)

// ErrRaced says that somebody else wrote at the same time, so that what we saw is
// out of date. It is no failure: only another look is needed.
var ErrRaced = errors.New("another write came first")

// Backoff decides when a custom resource is looked at again.
type Backoff struct {
	pauses workqueue.TypedRateLimiter[reconcile.Request]
}

// NewBackoff returns a Backoff whose pauses grow from 100 ms to a minute.
func NewBackoff() *Backoff {
	return &Backoff{pauses: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstPause, longestPause)}
}

// Result turns the end of a reconciliation into what the queue is told. wakeUp is
// after how long time alone will change something, zero for never. The queue never
// learns of errors: for one it would choose the pause alone, and wakeUp would pass
// unseen. failed is the error that counts as a
// failure, already logged; nil for a custom resource that went away, a conflict
// with another write, and a shutdown.
func (b *Backoff) Result(ctx context.Context, req ctrl.Request, wakeUp time.Duration, err error) (_ ctrl.Result, failed error) {
	switch {
	case err == nil, apierrors.IsNotFound(err): // it went away under us
		b.pauses.Forget(req)
		return ctrl.Result{RequeueAfter: wakeUp}, nil
	case errors.Is(ctx.Err(), context.Canceled): // we are being shut down
		return ctrl.Result{}, nil
	}
	pause := b.pauses.When(req)
	if wakeUp == 0 || pause < wakeUp {
		wakeUp = pause
	}
	again := ctrl.Result{RequeueAfter: wakeUp}
	if apierrors.IsConflict(err) || errors.Is(err, ErrRaced) {
		return again, nil
	}
	log.FromContext(ctx).Error(err, "not done, will be tried again")
	return again, err
}
