package challengeinstance

import (
	"context"
	"time"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
	"github.com/bergctf/berg-operator/internal/berg/redact"
	"github.com/bergctf/berg-operator/internal/kit/expiry"
)

// terminationWorkers is the number of expired instances that are deleted concurrently. More workers would end a few
// instances sooner, and would slow down the API server for starts.
func terminationWorkers(workers int) int { return max(1, workers/2) }

// expiries deletes live instances that have expired, or that have a termination reason. It is a controller of its own, so
// that an expiry does not wait behind the starts of a busy hour.
func (r *Reconciler) expiries() *expiry.Controller[*bergv1.ChallengeInstance, bergv1.TerminationReason] {
	return &expiry.Controller[*bergv1.ChallengeInstance, bergv1.TerminationReason]{
		Name:    "challengeinstance-expiry",
		New:     func() *bergv1.ChallengeInstance { return &bergv1.ChallengeInstance{} },
		List:    listInstances,
		Client:  r.Client,
		Clock:   r.Clock,
		Workers: terminationWorkers(r.Workers),
		Metrics: reconcileMetrics,
		// The time comes from spec and status of each version that is read. No timer is kept that an extension would have to
		// cancel.
		Due: func(i *bergv1.ChallengeInstance, now time.Time) (bergv1.TerminationReason, time.Time) {
			var expiry time.Time
			if over := status.EndsAt(i, r.Config.Challenge); over != nil {
				expiry = over.Time
			}
			return status.DueTermination(i, r.Config.Challenge, now), expiry
		},
		Moves: r.changesExpiry,
		End: func(ctx context.Context, i *bergv1.ChallengeInstance, reason bergv1.TerminationReason) error {
			return redact.Error(r.terminate(ctx, i, reason), i.Spec.Flag)
		},
		Ended: func(i *bergv1.ChallengeInstance, reason bergv1.TerminationReason) {
			if reason == bergv1.TerminationTimeout {
				expiryDelays.Observe(r.Clock.Since(status.EndsAt(i, r.Config.Challenge).Time).Seconds())
			}
		},
		Blocked: r.reportBlocked,
	}
}

// changesExpiry reports whether an update changes the time at which an instance expires or terminates.
func (r *Reconciler) changesExpiry(before, after *bergv1.ChallengeInstance) bool {
	if before.Spec.TerminationReason != after.Spec.TerminationReason || status.Frozen(before) != status.Frozen(after) {
		return true
	}
	return !status.EndsAt(before, r.Config.Challenge).Equal(status.EndsAt(after, r.Config.Challenge))
}
