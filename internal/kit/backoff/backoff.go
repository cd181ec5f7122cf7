// Package backoff computes the delays between attempts: exponential, with a limit.
package backoff

import (
	"math"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/util/workqueue"
)

// Exponential is a delay that doubles with every failure. Its user counts the failures, because the
// count has to be reset together with other state.
type Exponential struct {
	// First is the delay after the first failure, Max the maximum.
	First, Max time.Duration
}

// After returns the delay after a number of failures in a row, zero if there was none.
func (e Exponential) After(failures int) time.Duration {
	if failures < 1 {
		return 0
	}
	// In floating point, since a shift of a time.Duration overflows.
	return time.Duration(min(float64(e.Max), math.Ldexp(float64(e.First), failures-1)))
}

// NewLimiter returns a rate limiter that counts the failures of each item itself. All items
// together get perSecond attempts a second: without that bound a thousand items that failed
// together are retried together.
func NewLimiter[T comparable](e Exponential, perSecond int) workqueue.TypedRateLimiter[T] {
	return workqueue.NewTypedMaxOfRateLimiter(
		workqueue.NewTypedItemExponentialFailureRateLimiter[T](e.First, e.Max),
		&workqueue.TypedBucketRateLimiter[T]{Limiter: rate.NewLimiter(rate.Limit(perSecond), perSecond)})
}
