// Package upgradeable delays upgrades by the Operator Lifecycle Manager while there is
// work in flight that a restart would delay. It sets the condition Upgradeable of the
// OperatorCondition that OLM creates for each version of an operator.
//
// A restart costs only time, so a hold is short and ends by itself. It must not delay
// an upgrade that repairs the operator.
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
	// ReasonIdle (True): there is no such work.
	ReasonIdle = "Idle"
	// ReasonHoldExpired (True): there was work without a pause for as long as an
	// upgrade may be delayed.
	ReasonHoldExpired = "HoldExpired"
	// ReasonStopped (True): the operator was shut down.
	ReasonStopped = "OperatorStopped"
)

// Bounds are the time limits of a decision.
type Bounds struct {
	// Hold is the maximum delay of an upgrade, and the maximum age of work that
	// delays it: older work is stuck, and a restart does not matter to it.
	Hold time.Duration
	// Settle is how long there must be no work before the hold ends. It limits
	// the writes to two for each pause of that length.
	Settle time.Duration
}

// Decide returns the desired condition, and the time after which to decide again
// if nothing happens before; 0: never. previous is the current condition, nil for
// none. work lists when each job began, and lastBusy is the last time
// when Busy returned true.
func (b Bounds) Decide(previous *metav1.Condition, work []time.Time, lastBusy, now time.Time) (metav1.Condition, time.Duration) {
	held, heldSince := false, now
	expired := previous != nil && previous.Reason == ReasonHoldExpired
	if previous != nil && previous.Status == metav1.ConditionFalse {
		// A hold continues after a restart, and so does its end.
		held, heldSince = true, previous.LastTransitionTime.Time
	}
	rest := b.Hold - now.Sub(heldSince)
	fresh := b.fresh(work, now)

	switch {
	// The end of a hold comes first: no work may renew it.
	case held && rest <= 0:
		return b.expired(), later(fresh, b.Settle-now.Sub(lastBusy))
	// The same busy period goes on. A new hold needs a quiet period of Settle before.
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

// Busy reports whether any of the work delays an upgrade.
func (b Bounds) Busy(work []time.Time, now time.Time) bool {
	return b.fresh(work, now) > 0
}

// fresh returns for how long some of the work will still delay an upgrade.
func (b Bounds) fresh(work []time.Time, now time.Time) time.Duration {
	var left time.Duration
	for _, began := range work {
		left = max(left, b.Hold-now.Sub(began))
	}
	// Clocks differ: work that seems to begin in the future begins now.
	return min(left, b.Hold)
}

func (b Bounds) busy(since time.Time) metav1.Condition {
	return condition(metav1.ConditionFalse, ReasonBusy, fmt.Sprintf(
		"Resources are being created or removed, and a restart would delay them. An upgrade waits for a pause, but not longer than until %s.",
		since.Add(b.Hold).UTC().Format(time.RFC3339)))
}

func (b Bounds) expired() metav1.Condition {
	return condition(metav1.ConditionTrue, ReasonHoldExpired, fmt.Sprintf(
		"Resources are being created or removed without a pause, and the upgrade was delayed for %s. It may proceed.", b.Hold))
}

func stopped() metav1.Condition {
	return condition(metav1.ConditionTrue, ReasonStopped, "The operator does not run, so that an upgrade disturbs nothing.")
}

func condition(status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: operatorsv2.Upgradeable, Status: status, Reason: reason, Message: message}
}

// later returns the longer duration, and 0 if both are negative.
func later(a, b time.Duration) time.Duration {
	return max(a, b, 0)
}
