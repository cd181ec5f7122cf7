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
	// The delays between attempts.
	minDelay = 100 * time.Millisecond
	maxDelay = time.Minute
)

// ErrConflict says that another client wrote at the same time, so that the observed state is out of date. It is
// no failure: the next reconciliation observes again.
var ErrConflict = errors.New("another write came first")

// ErrGone says that the custom resource itself no longer exists: its event has come, or will. An object that belongs
// to it and is missing does not mean that.
var ErrGone = errors.New("the custom resource is gone")

// WrapNotFound returns the error of a request for the custom resource itself: an ErrGone when it does not exist.
func WrapNotFound(err error) error {
	if apply.Absent(err) {
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	return err
}

// Backoff decides when a custom resource is reconciled again.
type Backoff struct {
	delays workqueue.TypedRateLimiter[reconcile.Request]
	// uids are the UIDs of the custom resources that have the names of requests.
	uids sync.Map // reconcile.Request to types.UID
}

// NewBackoff returns a Backoff whose delays grow from 100 ms to a minute.
func NewBackoff() *Backoff {
	return &Backoff{delays: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](minDelay, maxDelay)}
}

// ResetIfReplaced says which custom resource has the name of a request now. It does not inherit the delays of an
// earlier one of that name. Names repeat, as when a player starts the same challenge again, and a minute of another's backoff
// would look like a hang.
func (b *Backoff) ResetIfReplaced(req ctrl.Request, uid types.UID) {
	if before, ok := b.uids.Swap(req, uid); ok && before != uid {
		b.delays.Forget(req)
	}
}

func (b *Backoff) forget(req ctrl.Request) {
	b.delays.Forget(req)
	b.uids.Delete(req)
}

// Result returns the queue's result for the end of a reconciliation. requeueAfter is the time after which the clock
// alone changes the outcome, zero for never. The queue never learns of errors: after one it alone would choose the
// delay, and requeueAfter would be ignored. failed is the error that counts as a failure, already logged; nil for
// an ErrGone, a conflict with another write, and a shutdown.
func (b *Backoff) Result(ctx context.Context, req ctrl.Request, requeueAfter time.Duration, err error) (_ ctrl.Result, failed error) {
	switch {
	case err == nil, errors.Is(err, ErrGone):
		b.forget(req)
		return ctrl.Result{RequeueAfter: requeueAfter}, nil
	// An error during a shutdown is most likely its consequence. The next leader reconciles everything when it starts, so nothing
	// is lost without a delay here.
	case errors.Is(ctx.Err(), context.Canceled): // the process shuts down
		return ctrl.Result{}, nil
	}
	// After a failure the resource is tried again no later than the backoff, and no later than time alone would
	// change it.
	delay := b.delays.When(req)
	if requeueAfter == 0 || delay < requeueAfter {
		requeueAfter = delay
	}
	result := ctrl.Result{RequeueAfter: requeueAfter}
	// A conflict is retried with the same growing delays, since two writers that never back off could reject each
	// other's writes without end, but it is no failure for logs and metrics.
	if apierrors.IsConflict(err) || errors.Is(err, ErrConflict) {
		return result, nil
	}
	log.FromContext(ctx).Error(err, "reconciliation failed, trying again", "after", requeueAfter)
	return result, err
}
