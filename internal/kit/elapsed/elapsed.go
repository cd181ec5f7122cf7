// Package elapsed tells how long a custom resource took, as a fraction of a second. The
// API server keeps times in whole seconds, and they are those of its own clock.
package elapsed

import "time"

// SinceCreation is how long a resource has existed, as well as it can be known, when the
// operator began to work on it at start. created is its metadata.creationTimestamp, start
// and now are times of the operator's clock.
//
// Since the start it is measured. Before, the resource was created at some time of the
// second that the API server noted, and not after the start. Where the start is in that
// second too, an operator that is awake has seen it at once, and nothing is added; else
// half a second is taken for what is not known, which is right on average. The clocks may
// disagree: no part is negative.
func SinceCreation(created, start, now time.Time) time.Duration {
	waited := start.Sub(created)
	if waited < time.Second {
		waited = 0
	} else {
		waited -= time.Second / 2
	}
	return waited + Since(start, now)
}

// Since is how long ago start was. The clocks of two replicas may disagree: it is never
// negative.
func Since(start, now time.Time) time.Duration { return max(0, now.Sub(start)) }
