package proxy

import (
	"testing"
	"time"
)

// Only who has waited shortly looks again: an idle stream costs no processor.
func TestWhoPolls(t *testing.T) {
	noon := time.Date(2026, 7, 11, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		waited []time.Duration // 0: there was something at once
		polls  bool
	}{
		"the first":                  {nil, false},
		"after a short wait":         {[]time.Duration{shortWait - 1}, true},
		"after a long wait":          {[]time.Duration{shortWait}, false},
		"short, then long":           {[]time.Duration{1, time.Second}, false},
		"long, then short":           {[]time.Duration{time.Second, 1}, true},
		"short, then not at all":     {[]time.Duration{1, 0}, true},
		"long, then not at all":      {[]time.Duration{time.Second, 0}, false},
		"nothing was waited for yet": {[]time.Duration{0}, false},
	} {
		var w waits
		now := noon
		for _, d := range tc.waited {
			if d > 0 {
				w.begin(now)
				now = now.Add(d)
			}
			w.end(func() time.Time { return now })
		}
		until := w.begin(now)
		if want := now.Add(pollFor); tc.polls && !until.Equal(want) || !tc.polls && !until.IsZero() {
			t.Errorf("%s: until %s", name, until)
		}
		if again := w.begin(now.Add(time.Hour)); !again.IsZero() {
			t.Errorf("%s: who is woken for nothing looks until %s", name, again)
		}
	}
}

func TestOnePollsAtATime(t *testing.T) {
	tries := 0
	soon := func() time.Time { return time.Now().Add(time.Minute) }
	if !poll(soon(), func() bool {
		if poll(soon(), func() bool { t.Error("two look at the same time"); return true }) {
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
	if poll(time.Time{}, func() bool { t.Error("it was not to look"); return true }) {
		t.Error("it looks all the same")
	}
}
