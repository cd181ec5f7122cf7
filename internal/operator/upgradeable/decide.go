// Package upgradeable tells the Operator Lifecycle Manager when the operator
// should not be replaced: while there is work in flight that a restart would
// delay. It does so in the condition Upgradeable of the OperatorCondition that
// OLM makes for each version of an operator.
//
// Only time is at stake, so a hold is short and ends by itself: it must not
// delay an upgrade for long that repairs the operator.
package upgradeable

import (
	"fmt"
	"time"

	operatorsv2 "github.com/operator-framework/api/pkg/operators/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The reasons of the condition.
const (
	// ReasonBusy (False): there is work that a restart would delay.
	ReasonBusy = "WorkInFlight"
	// ReasonIdle (True): there is none.
	ReasonIdle = "Idle"
	// ReasonHoldExpired (True): there has been work without a pause for as long
	// as an upgrade may be held up.
	ReasonHoldExpired = "HoldExpired"
	// ReasonStopped (True): the operator was shut down.
	ReasonStopped = "OperatorStopped"
)

// Bounds are the times that a decision keeps to.
type Bounds struct {
	// Hold is how long an upgrade is held up at most, and how old work may be to
	// hold it up: what takes longer than that is stuck, and waits for no operator.
	Hold time.Duration
	// Settle is how long there must be no work before the hold ends. It bounds
	// the writes: two for each pause of that length.
	Settle time.Duration
}

// Decide returns what the condition must be, and after what time to decide again
// if nothing happens before; 0: never. previous is the condition as it is, nil
// if there is none. work lists when each piece of work began, and lastBusy is
// the last time when Busy was true of it.
func (b Bounds) Decide(previous *metav1.Condition, work []time.Time, lastBusy, now time.Time) (metav1.Condition, time.Duration) {
	held, heldSince := false, now
	expired := previous != nil && previous.Reason == ReasonHoldExpired
	if previous != nil && previous.Status == metav1.ConditionFalse {
		// A hold outlives the process that began it, and so does its end.
		held, heldSince = true, previous.LastTransitionTime.Time
	}
	rest := b.Hold - now.Sub(heldSince)
	fresh := b.fresh(work, now)

	switch {
	case held && rest <= 0:
		return b.expired(), later(fresh, b.Settle-now.Sub(lastBusy))
	case expired && fresh > 0:
		return *previous, fresh
	case fresh > 0:
		return b.busy(heldSince), min(rest, fresh)
	case (held || expired) && now.Sub(lastBusy) < b.Settle:
		wait := b.Settle - now.Sub(lastBusy)
		if held {
			wait = min(wait, rest)
		}
		return *previous, wait
	default:
		return condition(metav1.ConditionTrue, ReasonIdle, "Nothing is being created or removed."), 0
	}
}

// Busy is whether any of the work counts.
func (b Bounds) Busy(work []time.Time, now time.Time) bool {
	return b.fresh(work, now) > 0
}

// fresh returns for how long some of the work will still count.
func (b Bounds) fresh(work []time.Time, now time.Time) time.Duration {
	var left time.Duration
	for _, began := range work {
		left = max(left, b.Hold-now.Sub(began))
	}
	// Clocks differ: what seems to begin in the future begins now.
	return min(left, b.Hold)
}

func (b Bounds) busy(since time.Time) metav1.Condition {
	return condition(metav1.ConditionFalse, ReasonBusy, fmt.Sprintf(
		"Something is being created or removed, and a restart would delay it. An upgrade waits for a pause, until %s at the latest.",
		since.Add(b.Hold).UTC().Format(time.RFC3339)))
}

func (b Bounds) expired() metav1.Condition {
	return condition(metav1.ConditionTrue, ReasonHoldExpired, fmt.Sprintf(
		"Things are being created or removed without a pause, and an upgrade has been held up for %s: it may proceed.", b.Hold))
}

func stopped() metav1.Condition {
	return condition(metav1.ConditionTrue, ReasonStopped, "The operator does not run: there is nothing that an upgrade would disturb.")
}

func condition(status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: operatorsv2.Upgradeable, Status: status, Reason: reason, Message: message}
}

// later returns the longer time, and 0 if neither lies ahead.
func later(a, b time.Duration) time.Duration {
	return max(a, b, 0)
}
