package dataconn

import (
	"testing"
	"time"
)

// Only a reader whose last wait was short polls: an idle stream costs no CPU.
func TestPolling(t *testing.T) {
	noon := time.Date(2026, 7, 11, 12, 0, 0, 0, time.UTC)
	type wait struct {
		long time.Duration // 0: there was something immediately
		n    int
	}
	for name, tc := range map[string]struct {
		waited []wait
		polls  bool
	}{
		"the first":                    {nil, false},
		"after a short wait":           {[]wait{{shortWait - 1, smallRead}}, true},
		"after a long wait":            {[]wait{{shortWait, 1}}, false},
		"after much":                   {[]wait{{1, smallRead + 1}}, false},
		"short, then long":             {[]wait{{1, 1}, {time.Second, 1}}, false},
		"long, then short":             {[]wait{{time.Second, 1}, {1, 1}}, true},
		"short, then not at all":       {[]wait{{1, 1}, {0, 1}}, true},
		"short, then much immediately": {[]wait{{1, 1}, {0, smallRead + 1}}, false},
		"long, then not at all":        {[]wait{{time.Second, 1}, {0, 1}}, false},
		"nothing was waited for yet":   {[]wait{{0, 1}}, false},
	} {
		var w waits
		now := noon
		for _, a := range tc.waited {
			if a.long > 0 {
				w.begin(now)
				now = now.Add(a.long)
			}
			w.end(func() time.Time { return now }, a.n)
		}
		until := w.begin(now)
		if want := now.Add(pollFor); tc.polls && !until.Equal(want) || !tc.polls && !until.IsZero() {
			t.Errorf("%s: until %s", name, until)
		}
		if again := w.begin(now.Add(time.Hour)); !again.IsZero() {
			t.Errorf("%s: after a spurious wakeup it polls until %s", name, again)
		}
	}
}

// On a busy machine a yield lasts a time slice of another program.
func TestNothingPollsOnABusyMachine(t *testing.T) {
	t.Cleanup(func() { busyUntil = time.Time{} })
	soon := func() time.Time { return time.Now().Add(time.Minute) }
	if !poll(soon(), func() bool { <-time.After(2 * slowPoll); return true }) {
		t.Error("what was found is lost")
	}
	if poll(soon(), func() bool { t.Error("it polls after a slow poll"); return true }) {
		t.Error("the second one has found something")
	}
	busyUntil = time.Now()
	if !poll(soon(), func() bool { return true }) {
		t.Error("it never polls again")
	}
}

func TestOnePollsAtATime(t *testing.T) {
	tries := 0
	soon := func() time.Time { return time.Now().Add(time.Minute) }
	if !poll(soon(), func() bool {
		if poll(soon(), func() bool { t.Error("two poll at the same time"); return true }) {
			t.Error("the second one has found something")
		}
		tries++
		return tries == 3
	}) || tries != 3 {
		t.Errorf("%d tries", tries)
	}
	if poll(time.Now(), func() bool { t.Error("its time is over"); return true }) || polling.Load() {
		t.Error("it does not end")
	}
	if poll(time.Time{}, func() bool { t.Error("it should not poll"); return true }) {
		t.Error("it polls nevertheless")
	}
}
