package clockskew

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// machine is one whose clock can be set and that can be suspended.
type machine struct {
	wall *clocktesting.FakePassiveClock
	mono time.Duration
}

func newMachine() *machine {
	return &machine{wall: clocktesting.NewFakePassiveClock(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))}
}

func (m *machine) clocks() Clocks {
	return Clocks{Wall: m.wall, Monotonic: func() time.Duration { return m.mono }}
}

// advance lets time elapse while the clock is set forward by step.
func (m *machine) advance(d, step time.Duration) {
	m.mono += d
	m.wall.SetTime(m.wall.Now().Add(d + step))
}

func TestSinceIsTheLonger(t *testing.T) {
	for name, tc := range map[string]struct{ passed, step, want time.Duration }{
		"nothing happened":      {time.Minute, 0, time.Minute},
		"suspended, or forward": {time.Second, time.Hour, time.Hour + time.Second},
		"set back":              {time.Minute, -time.Hour, time.Minute},
		"slightly slow":         {time.Hour, -time.Second, time.Hour},
	} {
		m := newMachine()
		c := m.clocks()
		then := c.Now()
		m.advance(tc.passed, tc.step)
		if got := c.Since(then); got != tc.want {
			t.Errorf("%s: %s ago, want %s", name, got, tc.want)
		}
	}
	if !(Moment{}).IsZero() || newMachine().clocks().Now().IsZero() {
		t.Error("the zero moment is none, and no other is")
	}
}

func TestMonotonicTimeOfTheRealClocksRuns(t *testing.T) {
	c := New(clocktesting.NewFakePassiveClock(time.Now()))
	then := c.Now()
	for c.Since(then) == 0 { // the time of day stands still
	}
}

func TestJumps(t *testing.T) {
	type look struct{ step, want time.Duration }
	for name, looks := range map[string][]look{
		"an even clock":             {{0, 0}, {0, 0}, {0, 0}},
		"forward":                   {{0, 0}, {time.Hour, time.Hour}, {0, 0}},
		"by little":                 {{threshold, 0}, {0, 0}},
		"by little again and again": {{threshold / 2, 0}, {threshold / 2, 0}, {1, threshold + 1}, {threshold / 2, 0}},
		"back":                      {{-time.Hour, 0}, {0, 0}},
		"back and forward again":    {{-time.Hour, 0}, {time.Hour, time.Hour}, {0, 0}},
		"back by little, forward":   {{-threshold, 0}, {threshold, 0}, {1, threshold + 1}},
		"twice":                     {{time.Minute, time.Minute}, {time.Hour, time.Hour}},
		"standing still":            {{-time.Second, 0}, {-time.Second, 0}, {-time.Second, 0}},
	} {
		m := newMachine()
		w := newWatcher(m.clocks())
		for n, l := range looks {
			m.advance(time.Second, l.step)
			if got := w.jumped(); got != l.want {
				t.Errorf("%s, look %d: by %s, want %s", name, n, got, l.want)
			}
		}
	}
}

// queue takes requests from a source.
type queue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	added chan reconcile.Request
}

func (q queue) Add(r reconcile.Request) { q.added <- r }

func TestEveryJumpIsAnEvent(t *testing.T) {
	wall := clocktesting.NewFakePassiveClock(time.Now())
	timed := reconcile.Request{NamespacedName: types.NamespacedName{Name: "timed"}}
	jumps := Source(wall, handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{timed}
	}))
	for _, name := range []string{"one controller", "another"} {
		q := queue{added: make(chan reconcile.Request, 1)}
		if err := jumps.Start(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			wall.SetTime(wall.Now().Add(time.Hour))
			if got := <-q.added; got != timed {
				t.Errorf("%s: %s is added", name, got)
			}
		}
	}
}

func TestTheWatchEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	newWatcher(newMachine().clocks()).run(ctx, func() { t.Error("there was no jump") })
}

// BenchmarkComparison is what Source does twice a second, for all that waits for a time of day.
func BenchmarkComparison(b *testing.B) {
	w := newWatcher(New(clock.RealClock{}))
	for b.Loop() {
		if w.jumped() > 0 {
			b.Log("the clock of this machine was set forward")
		}
	}
}
