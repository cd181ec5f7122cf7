// Package elapsed measures how long a custom resource took, in fractions of a second. The
// API server keeps times in whole seconds, of its own clock.
package elapsed

import "time"

// SinceCreation estimates how long a resource has existed, if the operator began to work on it
// at start. created is its metadata.creationTimestamp, start and now are times of the
// operator's clock.
//
// The time since start is measured. The resource was created at an unknown moment of the
// second in created, and not after start. If start is in the same second, the operator has
// seen the resource immediately, and nothing is added. Otherwise half a second is subtracted
// for the unknown part, which is right on average. The clocks may disagree: no part is
// negative.
func SinceCreation(created, start, now time.Time) time.Duration {
	waited := start.Sub(created)
	if waited < time.Second {
		waited = 0
	} else {
		waited -= time.Second / 2
	}
	return waited + Since(start, now)
}

// Since is the time since start. The clocks of two replicas may disagree: it is never
// negative.
func Since(start, now time.Time) time.Duration { return max(0, now.Sub(start)) }
