package expiry

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/bergctf/berg-operator/internal/kit/backoff"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// The delays between attempts to delete a resource, which is late already. An API server
// that cannot be reached is tried often, so that the resource is deleted soon after the API
// server is back. One that rejects a deletion, for example in a freeze, will reject it for a
// while, and also the deletion of all other expired resources.
var (
	failedDelays   = backoff.Exponential{First: 100 * time.Millisecond, Max: time.Second}
	rejectedDelays = backoff.Exponential{First: 100 * time.Millisecond, Max: time.Minute}
)

// The attempts a second for all expired resources together.
const (
	maxAttempts         = 100
	maxRejectedAttempts = 10
)

// delays is how long to wait before the next attempt to delete a resource. Two limiters, so that a hundred rejections do not slow
// down the retries after an outage.
type delays struct {
	failed, rejected workqueue.TypedRateLimiter[reconcile.Request]
}

func newDelays() delays {
	return delays{
		failed:   backoff.NewLimiter[reconcile.Request](failedDelays, maxAttempts),
		rejected: backoff.NewLimiter[reconcile.Request](rejectedDelays, maxRejectedAttempts),
	}
}

// after returns the delay after an attempt that failed with an error.
func (d delays) after(req reconcile.Request, err error) time.Duration {
	if outcome.Classify(err) == outcome.Rejected {
		return d.rejected.When(req)
	}
	return d.failed.When(req)
}

// lasts reports whether a failure is more than a brief one: the API server
// rejected the deletion, or it is not the first failure.
func (d delays) lasts(req reconcile.Request) bool {
	return d.rejected.NumRequeues(req) > 0 || d.failed.NumRequeues(req) > 1
}

func (d delays) forget(req reconcile.Request) {
	d.failed.Forget(req)
	d.rejected.Forget(req)
}
