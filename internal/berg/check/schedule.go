package check

import (
	"time"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// defaultTimeout is the default of the schema, for a ChallengeCheck that was stored without.
const defaultTimeout = 5 * time.Minute

// timeout is how long each of the two stages of a check may take.
func timeout(c *bergv1.ChallengeCheck) time.Duration {
	if d := duration(c.Spec.Timeout); d > 0 {
		return d
	}
	return defaultTimeout
}

// duration parses a duration that the schema has accepted; zero for an empty text.
func duration(text string) time.Duration {
	d, _ := time.ParseDuration(text)
	return d
}

// due returns since when a check has been to be made, or when it is to be. It is zero for
// never: the ChallengeCheck is suspended, or nothing has changed and no time was set. The
// Challenge may be nil.
func due(c *bergv1.ChallengeCheck, challenge *bergv1.Challenge) time.Time {
	if c.Spec.Suspend {
		return time.Time{}
	}
	next := wanted(c, challenge)
	// An interrupted check does not start again immediately: its cause may return as soon.
	if retry := c.Status.RetryAt; retry != nil && !next.IsZero() && next.Before(retry.Time) {
		return retry.Time
	}
	return next
}

// wanted returns when a check is wanted, the zero time for never. A result for an old content is always wanted again.
func wanted(c *bergv1.ChallengeCheck, challenge *bergv1.Challenge) time.Time {
	last := c.Status.LastResult
	if last == nil {
		return c.CreationTimestamp.Time
	}
	ended := last.StartedAt.Time
	if last.FinishedAt != nil {
		ended = last.FinishedAt.Time
	}
	if outdated(c, challenge) {
		return ended // the least recently checked one comes first
	}
	var next time.Time
	if every := duration(c.Spec.Schedule.Every); every > 0 {
		next = last.StartedAt.Add(every)
	}
	if shown := beforeShown(c, challenge); !shown.IsZero() && last.StartedAt.Time.Before(shown) && (next.IsZero() || shown.Before(next)) {
		next = shown
	}
	return next
}

// outdated reports whether the last result is of another ChallengeCheck or Challenge than there is.
func outdated(c *bergv1.ChallengeCheck, challenge *bergv1.Challenge) bool {
	last := c.Status.LastResult
	return last != nil && (last.Generation != c.Generation || challenge != nil && changed(last, challenge))
}

// changed reports whether a Challenge differs from the Challenge of a result.
func changed(last *bergv1.CheckResult, challenge *bergv1.Challenge) bool {
	return last.ChallengeGeneration != challenge.Generation || last.ChallengeUID != string(challenge.UID)
}

// beforeShown is when a Challenge is to be checked because players see it soon; zero for never.
func beforeShown(c *bergv1.ChallengeCheck, challenge *bergv1.Challenge) time.Time {
	lead := duration(c.Spec.Schedule.BeforeHideUntil)
	if lead <= 0 || challenge == nil {
		return time.Time{}
	}
	shown, err := time.Parse(time.RFC3339, challenge.Spec.HideUntil)
	if err != nil {
		return time.Time{} // it is not hidden
	}
	return shown.Add(-lead)
}
