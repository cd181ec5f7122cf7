package poll

import (
	"testing"
	"time"
)

// A provider that is down is asked less and less often; one answer of it, or one repository that fails, ends that.
func TestPausesOfAProvider(t *testing.T) {
	h, now := newHost(), time.Unix(1800000000, 0)
	defer h.queue.ShutDown()
	for range workers - 1 {
		h.observe(true, now)
	}
	if got := h.pausedFor(now); got != 0 {
		t.Errorf("%d failures pause it for %s", workers-1, got)
	}
	for _, want := range []time.Duration{firstPause, 2 * firstPause, 4 * firstPause, 8 * firstPause, maxPause, maxPause} {
		h.observe(true, now)
		if got := h.pausedFor(now); got != want {
			t.Errorf("a pause of %s, want %s", got, want)
		}
		for range workers { // under way when the pause began
			h.observe(true, now.Add(time.Second))
		}
		if got := h.pausedFor(now); got != want {
			t.Errorf("questions under way change the pause to %s", got)
		}
		now = now.Add(want)
	}
	h.observe(false, now)
	for range workers - 1 {
		h.observe(true, now)
	}
	if got := h.pausedFor(now); got != 0 {
		t.Errorf("after an answer, %d failures pause it for %s", workers-1, got)
	}
}
