package view

import "time"

// Threshold is the time after which something that normally ends by itself is a problem. The alert of the same name has it too.
type Threshold struct {
	Alert string
	After time.Duration
	// Sentence describes the problem for organisers.
	Sentence string
}

// The thresholds of instances, which are those of the alerts in config/berg/prometheus/rules.yaml.
var (
	StuckStarting    = Threshold{"BergInstanceStuckStarting", 10 * time.Minute, "It does not become ready."}
	StuckTerminating = Threshold{"BergInstanceStuckTerminating", 10 * time.Minute, "Its namespace is not deleted."}
	StuckQueued      = Threshold{"BergInstancesQueued", 15 * time.Minute, "It waits for a slot, and hardly any instance ends."}
)

// Thresholds lists them.
var Thresholds = []Threshold{StuckStarting, StuckTerminating, StuckQueued}

// Overdue returns the threshold that an instance has passed, nil if it has passed none.
func (r *Row) Overdue(now time.Time) *Threshold {
	threshold, since := StuckStarting, r.Started
	switch r.State {
	case Starting:
		if since.IsZero() {
			since = r.Created
		}
	case Waiting:
		threshold, since = StuckQueued, r.Created
	case Ending:
		threshold, since = StuckTerminating, r.Deleted
	default: // Failed has a problem from its first second
		return nil
	}
	if since.IsZero() || now.Sub(since) <= threshold.After {
		return nil
	}
	return &threshold
}

// Unseen reports whether the operator has not written anything about an instance.
func (r *Row) Unseen() bool {
	return r.State == Starting && r.Started.IsZero() && r.Cause == "" && len(r.Conditions) == 0
}
