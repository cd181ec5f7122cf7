// Package clockskew keeps timers and intervals right when the time of day jumps: when
// the clock of a machine is set, and when the machine was suspended. Timers and
// time.Since count in monotonic time, which does not jump. So a timer for a time of day
// ends late after a jump ahead, and a lease that is measured on a suspended machine
// seems to last too long.
package clockskew

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
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

// Now returns the present moment. Round removes the monotonic reading of a time.Time, with which Sub would ignore the time of
// day.
func (c Clocks) Now() Moment { return Moment{wall: c.Wall.Now().Round(0), mono: c.Monotonic()} }

// Since returns how long ago a moment was by the clock that says longer: after a
// suspend that is the time of day, after it was put back monotonic time. So a lease that counts with it ends too early at worst.
func (c Clocks) Since(m Moment) time.Duration {
	now := c.Now()
	return max(now.wall.Sub(m.wall), now.mono-m.mono)
}

// ahead is how far the time of day is ahead of monotonic time, counted from a moment.
func (c Clocks) ahead(m Moment) time.Duration {
	now := c.Now()
	return now.wall.Sub(m.wall) - (now.mono - m.mono)
}

const (
	// interval is how often the clocks are compared. Nothing reports every jump: a timer of
	// Linux that is cancelled when the clock is set does not notice a clock that only runs
	// faster for a while.
	interval = 500 * time.Millisecond
	// threshold is how far the time of day may get ahead of the timers.
	threshold = 250 * time.Millisecond
)

// Source is a source of one event, of no object, after every jump of the time of day ahead of the
// timers. After a jump back there is no need for one: timers end too early then, and a
// reconciliation that reads the time sets another one.
//
// The alternative is to requeue everything that waits for a time of day every 10 s. For 10,000 idle
// instances this takes 0.7 percent of a core, which is as much as the operator takes for all else
// then (docs/capacity.md), even without the work of controller-runtime around it. Comparing two
// clocks takes 0.2 µs (BenchmarkComparison), twice a second.
func Source(wall clock.PassiveClock, to handler.EventHandler) source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		w := newWatcher(New(wall))
		go w.run(ctx, func() { to.Generic(ctx, event.GenericEvent{Object: &metav1.PartialObjectMetadata{}}, queue) })
		return nil
	})
}

// watcher compares the time of day with monotonic time.
type watcher struct {
	clocks Clocks
	since  Moment
	// low is how far the time of day was ahead when it was least so, since the last jump: the
	// timer that is latest by now may have been set then.
	low time.Duration
}

func newWatcher(clocks Clocks) *watcher { return &watcher{clocks: clocks, since: clocks.Now()} }

// run calls jumped after every jump until ctx ends.
func (w *watcher) run(ctx context.Context, jumped func()) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if skew := w.jumped(); skew > 0 {
			log.FromContext(ctx).Info("the clock was set forward, or the machine was suspended: all resources that wait for a time are reconciled", "by", skew.Round(time.Millisecond))
			jumped()
		}
	}
}

// jumped returns by how much timers are late, zero if by no more than the threshold.
func (w *watcher) jumped() time.Duration {
	ahead := w.clocks.ahead(w.since)
	// A clock that is put back step by step is followed down, so that only a rise from there counts.
	w.low = min(w.low, ahead)
	skew := ahead - w.low
	if skew <= threshold {
		return 0
	}
	w.low = ahead
	return skew
}
