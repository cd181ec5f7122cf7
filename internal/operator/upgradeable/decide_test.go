package upgradeable

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var (
	noon   = time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)
	bounds = Bounds{Hold: 5 * time.Minute, Settle: 30 * time.Second}
)

func after(d time.Duration) time.Time { return noon.Add(d) }

// transitioned is a condition that got its status at a time.
func transitioned(at time.Time, c metav1.Condition) *metav1.Condition {
	c.LastTransitionTime = metav1.NewTime(at)
	return &c
}

func TestDecide(t *testing.T) {
	idle := condition(metav1.ConditionTrue, ReasonIdle, "")
	held := transitioned(noon, bounds.busy(noon))
	expired := transitioned(after(5*time.Minute), bounds.expired())
	for _, test := range []struct {
		name     string
		previous *metav1.Condition
		work     []time.Time
		lastBusy time.Time
		now      time.Time
		status   metav1.ConditionStatus
		reason   string
		again    time.Duration
	}{
		{
			name: "the first time without work", now: noon, lastBusy: noon,
			status: metav1.ConditionTrue, reason: ReasonIdle,
		},
		{
			name: "the first time with work", now: noon, lastBusy: noon, work: []time.Time{noon},
			status: metav1.ConditionFalse, reason: ReasonBusy, again: 5 * time.Minute,
		},
		{
			name: "work begins", previous: transitioned(after(-time.Hour), idle), now: noon, lastBusy: noon, work: []time.Time{after(-time.Second)},
			status: metav1.ConditionFalse, reason: ReasonBusy, again: 5*time.Minute - time.Second,
		},
		{
			name: "work continues", previous: held, now: after(time.Minute), lastBusy: after(time.Minute), work: []time.Time{after(50 * time.Second)},
			status: metav1.ConditionFalse, reason: ReasonBusy, again: 4 * time.Minute,
		},
		{
			name: "a pause that is too short", previous: held, now: after(time.Minute), lastBusy: after(40 * time.Second),
			status: metav1.ConditionFalse, reason: ReasonBusy, again: 10 * time.Second,
		},
		{
			name: "a short pause at the end of the hold", previous: held, now: after(4*time.Minute + 55*time.Second), lastBusy: after(4*time.Minute + 50*time.Second),
			status: metav1.ConditionFalse, reason: ReasonBusy, again: 5 * time.Second,
		},
		{
			name: "a pause", previous: held, now: after(time.Minute), lastBusy: after(30 * time.Second),
			status: metav1.ConditionTrue, reason: ReasonIdle,
		},
		{
			name: "no pause for too long", previous: held, now: after(5 * time.Minute), lastBusy: after(5 * time.Minute), work: []time.Time{after(4 * time.Minute)},
			status: metav1.ConditionTrue, reason: ReasonHoldExpired, again: 4 * time.Minute,
		},
		{
			name: "no pause after that either", previous: expired, now: after(10 * time.Minute), lastBusy: after(10 * time.Minute), work: []time.Time{after(10 * time.Minute)},
			status: metav1.ConditionTrue, reason: ReasonHoldExpired, again: 5 * time.Minute,
		},
		{
			name: "a short pause after that", previous: expired, now: after(10 * time.Minute), lastBusy: after(10*time.Minute - 10*time.Second),
			status: metav1.ConditionTrue, reason: ReasonHoldExpired, again: 20 * time.Second,
		},
		{
			name: "a pause after that", previous: expired, now: after(10 * time.Minute), lastBusy: after(9 * time.Minute),
			status: metav1.ConditionTrue, reason: ReasonIdle,
		},
		{
			name: "stuck work alone", previous: transitioned(after(-time.Hour), idle), now: noon, lastBusy: after(-time.Hour), work: []time.Time{after(-5 * time.Minute)},
			status: metav1.ConditionTrue, reason: ReasonIdle,
		},
		{
			name: "fresh work and stuck work", previous: transitioned(after(-time.Hour), idle), now: noon, lastBusy: noon, work: []time.Time{after(-2 * time.Hour), after(-time.Minute)},
			status: metav1.ConditionFalse, reason: ReasonBusy, again: 4 * time.Minute,
		},
		{
			name: "a new process after a clean end, idle", previous: transitioned(noon, stopped()), now: after(time.Second), lastBusy: after(time.Second),
			status: metav1.ConditionTrue, reason: ReasonIdle,
		},
		{
			name: "a new process after a clean end, busy", previous: transitioned(noon, stopped()), now: after(time.Second), lastBusy: after(time.Second), work: []time.Time{noon},
			status: metav1.ConditionFalse, reason: ReasonBusy, again: 5*time.Minute - time.Second,
		},
		{
			name: "a new process long after a crash", previous: held, now: after(time.Hour), lastBusy: after(time.Hour), work: []time.Time{after(time.Hour)},
			status: metav1.ConditionTrue, reason: ReasonHoldExpired, again: 5 * time.Minute,
		},
		{
			name: "a hold by a clock that is ahead", previous: transitioned(after(2*time.Second), bounds.busy(after(2*time.Second))), now: noon, lastBusy: noon, work: []time.Time{noon},
			status: metav1.ConditionFalse, reason: ReasonBusy, again: 5 * time.Minute,
		},
		{
			name: "work that begins in the future", now: noon, lastBusy: noon, work: []time.Time{after(time.Hour)},
			status: metav1.ConditionFalse, reason: ReasonBusy, again: 5 * time.Minute,
		},
		{
			name: "a condition written by hand", previous: transitioned(noon, condition(metav1.ConditionFalse, "Weekend", "Not now.")), now: after(time.Minute), lastBusy: noon,
			status: metav1.ConditionTrue, reason: ReasonIdle,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, again := bounds.Decide(test.previous, test.work, test.lastBusy, test.now)
			if got.Status != test.status || got.Reason != test.reason || again != test.again {
				t.Errorf("got %s/%s, again after %s; want %s/%s, %s", got.Status, got.Reason, again, test.status, test.reason, test.again)
			}
			if got.Type != "Upgradeable" || got.Message == "" {
				t.Errorf("incomplete: %+v", got)
			}
		})
	}
}

// An event: for two hours, a player starts an instance every 20 seconds that takes
// 10 seconds. An upgrade waits no longer than the hold, and not every instance costs
// a write.
func TestBusyEvent(t *testing.T) {
	var (
		current  *metav1.Condition
		lastBusy time.Time
		writes   int
		left     time.Duration
	)
	for now := noon; now.Before(after(2 * time.Hour)); now = now.Add(time.Second) {
		var work []time.Time
		if began := now.Truncate(20 * time.Second); now.Sub(began) < 10*time.Second {
			work = append(work, began)
		}
		if bounds.Busy(work, now) {
			lastBusy = now
		}
		next, _ := bounds.Decide(current, work, lastBusy, now)
		if current == nil || !same(*current, next) {
			writes++
			if current != nil && current.Status == next.Status {
				next.LastTransitionTime = current.LastTransitionTime
			} else {
				next.LastTransitionTime = metav1.NewTime(now)
			}
			current = &next
		}
		if current.Status == metav1.ConditionFalse {
			left = max(left, now.Sub(current.LastTransitionTime.Time))
		}
	}
	if writes != 2 || current.Reason != ReasonHoldExpired || left >= bounds.Hold {
		t.Errorf("%d writes, held up for %s, at last %s; want 2, less than %s, %s", writes, left, current.Reason, bounds.Hold, ReasonHoldExpired)
	}
}
