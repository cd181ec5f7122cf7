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
	// conflictPause is how long we wait for the cache to show the write that ours
	// collided with, when that write's own event does not wake us.
	conflictPause = 200 * time.Millisecond
	// The pauses between attempts at what the API server refuses.
	firstPause   = 100 * time.Millisecond
	longestPause = time.Minute
)

// Backoff decides when a custom resource is looked at again.
type Backoff struct {
	pauses workqueue.TypedRateLimiter[reconcile.Request]
}

// NewBackoff returns a Backoff whose pauses grow from 100 ms to a minute.
func NewBackoff() *Backoff {
	return &Backoff{pauses: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstPause, longestPause)}
}

// Result turns the end of a reconciliation into what the queue is told. The
// queue never learns of errors: for one it would choose the pause alone, and a
// deadline in result would be missed. failed is the error that counts as a
// failure, already logged; nil for a custom resource that went away, a conflict
// with another write, and a shutdown.
func (b *Backoff) Result(ctx context.Context, req ctrl.Request, result ctrl.Result, err error) (_ ctrl.Result, failed error) {
	switch {
	case err == nil, apierrors.IsNotFound(err): // it went away under us
		b.pauses.Forget(req)
		return result, nil
	case apierrors.IsConflict(err):
		result.RequeueAfter = conflictPause
		return result, nil
	case errors.Is(ctx.Err(), context.Canceled): // we are being shut down
		return ctrl.Result{}, nil
	}
	log.FromContext(ctx).Error(err, "not done, will be tried again")
	pause := b.pauses.When(req)
	if result.RequeueAfter == 0 || pause < result.RequeueAfter {
		result.RequeueAfter = pause
	}
	return result, err
}
