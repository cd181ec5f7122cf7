// Package clockskew keeps timers and intervals right when the time of day jumps: when
// the clock of a machine is set, and when the machine was suspended. Timers and
// time.Since count in monotonic time, which does not jump. So a timer for a time of day
// ends late after a jump ahead, and a lease that is measured on a suspended machine
// seems to last too long.
package clockskew

import (
	"time"

	"k8s.io/utils/clock"
)

// Clocks are the time of day and monotonic time.
type Clocks struct {
	// Wall is the time of day.
	Wall clock.PassiveClock
	// Monotonic is the monotonic time since any moment of this process.
	Monotonic func() time.Duration
}

// New returns the time of day that wall shows, and the monotonic time of this machine.
func New(wall clock.PassiveClock) Clocks {
	began := time.Now()
	return Clocks{Wall: wall, Monotonic: func() time.Duration { return time.Since(began) }}
}

// Moment is a point in both times. The zero value is none.
type Moment struct {
	wall time.Time
	mono time.Duration
}

// IsZero reports whether it is none.
func (m Moment) IsZero() bool { return m.wall.IsZero() }

// Now returns the present moment.
func (c Clocks) Now() Moment { return Moment{wall: c.Wall.Now().Round(0), mono: c.Monotonic()} }

// Since returns how long ago a moment was by the clock that says longer: after a
// suspend that is the time of day, after it was put back monotonic time.
func (c Clocks) Since(m Moment) time.Duration {
	now := c.Now()
	return max(now.wall.Sub(m.wall), now.mono-m.mono)
}

// ahead is how far the time of day is ahead of monotonic time, counted from a moment.
func (c Clocks) ahead(m Moment) time.Duration {
	now := c.Now()
	return now.wall.Sub(m.wall) - (now.mono - m.mono)
}
