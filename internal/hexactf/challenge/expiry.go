package challenge

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/expiry"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// reason is why a challenge must end.
type reason string

// expired reports whether the time of a challenge is over.
func expired(c *hexactfv1.Challenge, now time.Time) bool {
	return c.Status.ExpiresAt != nil && !now.Before(c.Status.ExpiresAt.Time)
}

// expiries deletes live challenges that have expired. It has workers of its own, so that a thousand starts do not delay an
// expiry.
func (r *Reconciler) expiries() *expiry.Controller[*hexactfv1.Challenge, reason] {
	return &expiry.Controller[*hexactfv1.Challenge, reason]{
		Name:    "challenge-expiry",
		New:     newChallenge,
		List:    listChallenges,
		Client:  r.Client,
		Clock:   r.Clock,
		Workers: r.Workers,
		Metrics: reconcileMetrics,
		Due: func(c *hexactfv1.Challenge, now time.Time) (cause reason, due time.Time) {
			if c.Status.ExpiresAt == nil {
				return "", time.Time{} // it does not expire, or not yet
			}
			if expired(c, now) {
				cause = hexactfv1.ReasonExpired
			}
			return cause, c.Status.ExpiresAt.Time
		},
		Moves: func(before, after *hexactfv1.Challenge) bool {
			return before.UID != after.UID || !before.Status.ExpiresAt.Equal(after.Status.ExpiresAt)
		},
		End: func(ctx context.Context, c *hexactfv1.Challenge, _ reason) error {
			r.expiring.Add(1)
			defer r.expiring.Add(-1)
			return apply.Delete(ctx, r.Client, c)
		},
		Ended: func(c *hexactfv1.Challenge, _ reason) {
			expirations.Inc()
			expiryDelays.Observe(reconcile.Elapsed(c.Status.ExpiresAt.Time, r.Clock.Now()).Seconds())
			reconcile.Normal(r.Events, c, hexactfv1.ReasonExpired, actionDelete, "The challenge has expired and is deleted")
		},
		Blocked: func(_ context.Context, c *hexactfv1.Challenge, _ reason, err error, _ time.Time) {
			if status := apierrors.APIStatus(nil); errors.As(err, &status) {
				// The recorder counts repetitions.
				reconcile.Warning(r.Events, c, hexactfv1.ReasonDeletionBlocked, actionDelete,
					fmt.Sprintf("The challenge has expired, but the API server refuses its deletion; retrying: %s", err))
			}
		},
	}
}
