package bergtest

import (
	"sync/atomic"
	"time"
)

// SteppingClock is the time of day of a machine whose clock can be set. It has no
// monotonic reading, which a step would not change.
type SteppingClock struct{ ahead atomic.Int64 }

// Step puts the clock forward, or back where d is negative.
func (c *SteppingClock) Step(d time.Duration) { c.ahead.Add(int64(d)) }

// Now is the time of the machine, and what was stepped.
func (c *SteppingClock) Now() time.Time {
	return time.Now().Round(0).Add(time.Duration(c.ahead.Load()))
}

// Since is the time from t to Now.
func (c *SteppingClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
