package proxy

import (
	"sync/atomic"
	"time"
)

// Where requests and answers follow each other closely, as over loopback, most of their time goes
// into processors that fall asleep and are woken. So whoever has waited shortly looks again for a
// moment before it lets the kernel wake it.
const (
	// pollFor is how long it looks, and shortWait how short the last wait must have been. Measured on
	// two processors: 30 to 40 µs, after less than 160 to 200, take a sixth from the median of a round
	// trip and a quarter from its slowest hundredth; longer ones keep others from the processor.
	pollFor   = 30 * time.Microsecond
	shortWait = 160 * time.Microsecond
	// smallRead is how many bytes may have come then: more are bulk, which fills its time without.
	smallRead = recordSize
)

// polling is held by the one of a process that looks: what many wait for, something comes of all
// the time, so that nobody falls asleep.
var polling atomic.Bool

// waits are those of one who reads.
type waits struct {
	since time.Time // zero: it does not wait
	short bool      // the last one was, and for little
}

// begin notes that there is nothing to read, and returns until when to look again; zero for not at
// all.
func (w *waits) begin(now time.Time) (until time.Time) {
	if !w.since.IsZero() {
		return time.Time{} // it was woken for nothing
	}
	w.since = now
	if !w.short {
		return time.Time{}
	}
	return now.Add(pollFor)
}

// end notes that there were n bytes to read.
func (w *waits) end(now func() time.Time, n int) {
	if n > smallRead {
		w.short = false
	} else if !w.since.IsZero() {
		w.short = now().Sub(w.since) < shortWait
	}
	w.since = time.Time{}
}

// poll tries until it works or the time is over, and reports whether it has worked.
func poll(until time.Time, try func() bool) bool {
	if until.IsZero() || !polling.CompareAndSwap(false, true) {
		return false
	}
	defer polling.Store(false)
	for time.Now().Before(until) {
		yield()
		if try() {
			return true
		}
	}
	return false
}
