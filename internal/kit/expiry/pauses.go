package expiry

import (
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// The pauses between attempts to delete a resource, which is late already. An API server
// that cannot be reached is tried often: when it is back, what the resource holds is given
// back soon. One that refuses a deletion, as in a freeze, will do so for a while, and for
// all that have expired.
const (
	minDelay         = 100 * time.Millisecond
	maxDelay         = time.Second
	maxRejectedDelay = time.Minute

	// What all that have expired try together, for a second.
	maxAttempts         = 100
	maxRejectedAttempts = 10
)

// pauses are how long to wait before the next attempt to delete a resource.
type delays struct {
	failed, refused workqueue.TypedRateLimiter[reconcile.Request]
}

func newDelays() delays {
	limiter := func(longest time.Duration, together int) workqueue.TypedRateLimiter[reconcile.Request] {
		return workqueue.NewTypedMaxOfRateLimiter(
			workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](minDelay, longest),
			&workqueue.TypedBucketRateLimiter[reconcile.Request]{Limiter: rate.NewLimiter(rate.Limit(together), together)})
	}
	return delays{failed: limiter(maxDelay, maxAttempts), refused: limiter(maxRejectedDelay, maxRejectedAttempts)}
}

// after returns the pause after an attempt that failed with an error.
func (p delays) after(req reconcile.Request, err error) time.Duration {
	if outcome.CauseOf(err) == outcome.Rejected {
		return p.refused.When(req)
	}
	return p.failed.When(req)
}

// lasts reports whether a failure is more than a brief one: the API server
// refused, or it is not the first failure.
func (p delays) lasts(req reconcile.Request) bool {
	return p.refused.NumRequeues(req) > 0 || p.failed.NumRequeues(req) > 1
}

func (p delays) forget(req reconcile.Request) {
	p.failed.Forget(req)
	p.refused.Forget(req)
}
