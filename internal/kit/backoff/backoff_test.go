package backoff

import (
	"testing"
	"time"
)

func TestDelaysDoubleUpToTheLimit(t *testing.T) {
	e := Exponential{First: 500 * time.Millisecond, Max: time.Minute}
	for failures, want := range map[int]time.Duration{
		-1: 0, 0: 0, 1: 500 * time.Millisecond, 2: time.Second, 7: 32 * time.Second, 8: time.Minute,
		60: time.Minute, 1 << 20: time.Minute,
	} {
		if got := e.After(failures); got != want {
			t.Errorf("after %d failures the delay is %s, want %s", failures, got, want)
		}
	}
}

func TestLimiterBoundsAllItemsTogether(t *testing.T) {
	limiter := NewLimiter[int](Exponential{First: time.Millisecond, Max: 10 * time.Millisecond}, 10)
	var last time.Duration
	for item := range 100 {
		last = limiter.When(item)
	}
	if last < 8*time.Second {
		t.Errorf("the last of 100 items is retried after %s, want 8 s or more at 10 a second", last)
	}
	if got := limiter.NumRequeues(1); got != 1 {
		t.Errorf("item 1 failed %d times, want 1", got)
	}
	limiter.Forget(1)
	if got := limiter.NumRequeues(1); got != 0 {
		t.Errorf("item 1 failed %d times after Forget, want 0", got)
	}
}
