package clockskew

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
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

// pass lets time pass while the clock is put forward by step.
func (m *machine) pass(d, step time.Duration) {
	m.mono += d
	m.wall.SetTime(m.wall.Now().Add(d + step))
}

func TestSinceIsTheLonger(t *testing.T) {
	for name, tc := range map[string]struct{ passed, step, want time.Duration }{
		"nothing happened":      {time.Minute, 0, time.Minute},
		"suspended, or forward": {time.Second, time.Hour, time.Hour + time.Second},
		"put back":              {time.Minute, -time.Hour, time.Minute},
		"slightly slow":         {time.Hour, -time.Second, time.Hour},
	} {
		m := newMachine()
		c := m.clocks()
		then := c.Now()
		m.pass(tc.passed, tc.step)
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
			m.pass(time.Second, l.step)
			if got := w.jumped(); got != l.want {
				t.Errorf("%s, look %d: by %s, want %s", name, n, got, l.want)
			}
		}
	}
}

func TestEverybodyIsWoken(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	wall := clocktesting.NewFakePassiveClock(time.Now())
	w := NewWatcher(wall)
	woken := make(chan string)
	for _, name := range []string{"one", "another"} {
		w.OnJump(func(ctx context.Context) {
			select {
			case woken <- name:
			case <-ctx.Done():
			}
		})
	}
	ended := make(chan error)
	go func() { ended <- w.Start(ctx) }()
	wall.SetTime(wall.Now().Add(time.Hour))
	if a, b := <-woken, <-woken; a != "one" || b != "another" {
		t.Errorf("%s and %s were woken", a, b)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// queue takes requests from a source.
type queue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	added chan reconcile.Request
}

func (q queue) Add(r reconcile.Request) { q.added <- r }

func TestAJumpIsASourceOfRequests(t *testing.T) {
	w := newWatcher(newMachine().clocks())
	timed := reconcile.Request{NamespacedName: types.NamespacedName{Name: "timed"}}
	jumps := w.Source(handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{timed}
	}))
	q := queue{added: make(chan reconcile.Request, 1)}
	if err := jumps.Start(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	w.callbacks[0](t.Context())
	if got := <-q.added; got != timed {
		t.Errorf("%s is added", got)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	unheard := newWatcher(newMachine().clocks())
	unheard.Source(nil)
	unheard.callbacks[0](ended) // returns though nobody listens
}
