package outcome

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/bergctf/berg-operator/internal/kit/apply"
)

const (
	// The pauses between attempts.
	firstPause   = 100 * time.Millisecond
	longestPause = time.Minute
)

// ErrRaced says that somebody else wrote at the same time, so that what we saw is
// out of date. It is no failure: only another look is needed.
var ErrRaced = errors.New("another write came first")

// ErrGone says that the custom resource itself is not there any more: its event has come, or
// will. That something belonging to it is not there does not mean that.
var ErrGone = errors.New("the custom resource is gone")

// Itself returns the error of a request for the custom resource itself: an ErrGone when that
// is not there.
func Itself(err error) error {
	if apply.Absent(err) {
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	return err
}

// Backoff decides when a custom resource is looked at again.
type Backoff struct {
	pauses workqueue.TypedRateLimiter[reconcile.Request]
	// met are the custom resources that have the names of requests.
	met sync.Map // reconcile.Request to types.UID
}

// NewBackoff returns a Backoff whose pauses grow from 100 ms to a minute.
func NewBackoff() *Backoff {
	return &Backoff{pauses: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstPause, longestPause)}
}

// Meet says which custom resource has the name of a request now. It does not wait for what
// another one of that name has failed at.
func (b *Backoff) Meet(req ctrl.Request, uid types.UID) {
	if before, ok := b.met.Swap(req, uid); ok && before != uid {
		b.pauses.Forget(req)
	}
}

func (b *Backoff) forget(req ctrl.Request) {
	b.pauses.Forget(req)
	b.met.Delete(req)
}

// Result turns the end of a reconciliation into what the queue is told. wakeUp is
// after how long time alone will change something, zero for never. The queue never
// learns of errors: after one it alone would choose the pause, and wakeUp would be
// ignored. failed is the error that counts as a failure, already logged; nil for
// an ErrGone, a conflict with another write, and a shutdown.
func (b *Backoff) Result(ctx context.Context, req ctrl.Request, wakeUp time.Duration, err error) (_ ctrl.Result, failed error) {
	switch {
	case err == nil, errors.Is(err, ErrGone):
		b.forget(req)
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
