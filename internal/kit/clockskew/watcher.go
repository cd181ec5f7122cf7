package clockskew

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

const (
	// look is how often the clocks are compared. Nothing tells of every jump: a timer
	// of Linux that is cancelled when the clock is set hears nothing of one that only
	// runs faster for a while.
	interval = 250 * time.Millisecond
	// tolerance is how far the time of day may get ahead of the timers.
	threshold = 250 * time.Millisecond
)

// Watcher wakes those who have set timers for a time of day when it has got ahead of
// them. When it falls behind there is no need to: then timers end too early, and who
// looks at the time sets another one. It is a runnable of the manager; timers are the
// leader's.
type Watcher struct {
	clocks Clocks
	since  Moment
	// low is how far the time of day was ahead when it was least so, since all were
	// woken last: the timer that is latest by now may have been set then.
	low       time.Duration
	callbacks []func(context.Context)
}

// NewWatcher returns a Watcher of a time of day.
func NewWatcher(wall clock.PassiveClock) *Watcher { return newWatcher(New(wall)) }

func newWatcher(clocks Clocks) *Watcher { return &Watcher{clocks: clocks, since: clocks.Now()} }

// Wake has wake called after every jump. It must return when its context ends. To be
// called before Start.
func (w *Watcher) OnJump(wake func(context.Context)) { w.callbacks = append(w.callbacks, wake) }

// NeedLeaderElection has the manager run the watcher in the leader only.
func (w *Watcher) NeedLeaderElection() bool { return true }

// Start watches until the context ends.
func (w *Watcher) Start(ctx context.Context) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if by := w.jumped(); by > 0 {
			log.FromContext(ctx).Info("the clock was put forward, or the machine was suspended: what is timed is looked at again", "by", by.Round(time.Millisecond))
			for _, wake := range w.callbacks {
				wake(ctx)
			}
		}
	}
}

// jumped returns by how much timers are late, zero if that can be tolerated.
func (w *Watcher) jumped() time.Duration {
	ahead := w.clocks.ahead(w.since)
	w.low = min(w.low, ahead)
	by := ahead - w.low
	if by <= threshold {
		return 0
	}
	w.low = ahead
	return by
}

// Source is a source of one event, of no object, after every jump. To be called before
// Start.
func (w *Watcher) Source(to handler.EventHandler) source.Source {
	jumped := make(chan event.GenericEvent)
	w.OnJump(func(ctx context.Context) {
		select {
		case jumped <- event.GenericEvent{Object: &metav1.PartialObjectMetadata{}}:
		case <-ctx.Done():
		}
	})
	return source.Channel(jumped, to)
}
