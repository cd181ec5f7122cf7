package check

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// lateness finds out for how long checks have been due without a result. A status says neither
// since when a result has been outdated, nor when a suspension ended; so the time of the first
// observation is remembered. The zero value is ready for use.
type lateness struct {
	mu   sync.Mutex
	seen map[types.UID]observation
}

// observation records since when a check has been due, for one last result.
type observation struct {
	result   metav1.Time
	dueSince time.Time
	// outdated: the result is of another Challenge or ChallengeCheck than there is.
	outdated bool
}

// observeOverdue returns the time for which the most overdue check has been due.
func (r *Reconciler) observeOverdue(reader client.Reader) func(context.Context) (float64, error) {
	var late lateness
	return func(ctx context.Context) (float64, error) {
		var all bergv1.ChallengeCheckList
		if err := reader.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
			return 0, err
		}
		challenges := map[types.UID]*bergv1.Challenge{}
		for i := range all.Items {
			c := &all.Items[i]
			challenge, err := r.challengeIn(ctx, reader, c)
			if err != nil {
				return 0, err
			}
			challenges[c.UID] = challenge
		}
		return late.maxDelay(all.Items, challenges, r.Clock.Now()).Seconds(), nil
	}
}

// maxDelay counts every reason for which a check waits, also when it is broken off repeatedly: until it completes, it is
// not known whether its Challenge works. challenges has the Challenge of each check, by the UID of the check.
func (l *lateness) maxDelay(all []bergv1.ChallengeCheck, challenges map[types.UID]*bergv1.Challenge, now time.Time) (maxDelay time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := map[types.UID]observation{}
	for i := range all {
		c := &all[i]
		if c.DeletionTimestamp != nil {
			continue
		}
		s := l.seen[c.UID]
		if result := resultAt(c); !s.result.Equal(&result) {
			s = observation{result: result}
		}
		switch {
		case c.Spec.Suspend:
			s.dueSince = now
		case !s.outdated && outdated(c, challenges[c.UID]):
			s.dueSince, s.outdated = now, true
		}
		seen[c.UID] = s
		if since := wanted(c, challenges[c.UID]); !c.Spec.Suspend && !since.IsZero() {
			maxDelay = max(maxDelay, lateAt(c, now).Sub(latest(since, s.dueSince)))
		}
	}
	// A check that is gone is forgotten with this assignment.
	l.seen = seen
	return maxDelay
}

// lateAt is up to when the delay of a check counts. While one is being made the clock stands still:
// it may take its time. One that takes longer than it may is late again.
func lateAt(c *bergv1.ChallengeCheck, now time.Time) time.Time {
	run := c.Status.Run
	if run == nil || run.FinishedAt != nil || now.After(run.StartedAt.Add(lifetime(c))) {
		return now
	}
	return run.StartedAt.Time
}

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// resultAt is which result is the last one of a ChallengeCheck, zero if there is none.
func resultAt(c *bergv1.ChallengeCheck) metav1.Time {
	if c.Status.LastResult == nil {
		return metav1.Time{}
	}
	return c.Status.LastResult.StartedAt
}
