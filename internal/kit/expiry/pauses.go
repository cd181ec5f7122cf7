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
	firstPause          = 100 * time.Millisecond
	longestPause        = time.Second
	longestRefusedPause = time.Minute

	// What all that have expired try together, for a second.
	mostTries        = 100
	mostRefusedTries = 10
)

// pauses are how long to wait before the next attempt to delete a resource.
type pauses struct {
	failed, refused workqueue.TypedRateLimiter[reconcile.Request]
}

func newPauses() pauses {
	limiter := func(longest time.Duration, together int) workqueue.TypedRateLimiter[reconcile.Request] {
		return workqueue.NewTypedMaxOfRateLimiter(
			workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstPause, longest),
			&workqueue.TypedBucketRateLimiter[reconcile.Request]{Limiter: rate.NewLimiter(rate.Limit(together), together)})
	}
	return pauses{failed: limiter(longestPause, mostTries), refused: limiter(longestRefusedPause, mostRefusedTries)}
}

// after returns the pause after an attempt that failed with an error.
func (p pauses) after(req reconcile.Request, err error) time.Duration {
	if outcome.CauseOf(err) == outcome.Rejected {
		return p.refused.When(req)
	}
	return p.failed.When(req)
}

// lasts reports whether a failure is more than a brief one: the API server
// refused, or it is not the first failure.
func (p pauses) lasts(req reconcile.Request) bool {
	return p.refused.NumRequeues(req) > 0 || p.failed.NumRequeues(req) > 1
}

func (p pauses) forget(req reconcile.Request) {
	p.failed.Forget(req)
	p.refused.Forget(req)
}
