package operator

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
)

// slowSink takes a second for each event, and notes when it was done, in seconds.
type slowSink struct {
	events.EventSink
	began time.Time
	done  []int
}

func (s *slowSink) Create(ctx context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	select {
	case <-time.After(time.Second):
		s.done = append(s.done, int(time.Since(s.began).Seconds()))
		return e, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// emit emits events concurrently.
func emit(ctx context.Context, s *eventSink, n int) {
	for range n {
		go func() { _, _ = s.Create(ctx, &eventsv1.Event{EventTime: metav1.NowMicro()}) }()
	}
	synctest.Wait()
}

func TestEventsAreWrittenOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &slowSink{began: time.Now()}
		s := newEventSink(slow)
		emit(t.Context(), s, 3)
		s.flush(time.Hour)
		if want := []int{1, 2, 3}; !slices.Equal(slow.done, want) {
			t.Errorf("done after %v seconds, not %v", slow.done, want)
		}
	})
}

func TestEventsThatAreTooManyAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &slowSink{began: time.Now()}
		s := newEventSink(slow)
		emit(t.Context(), s, maxEvents+5)
		s.flush(2 * maxEvents * time.Second)
		if len(slow.done) != maxEvents {
			t.Errorf("%d of %d events were written", len(slow.done), maxEvents+5)
		}
	})
}

func TestEventsThatAreNotAcceptedDoNotDelayTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		s := newEventSink(&slowSink{began: began})
		emit(ctx, s, 100)
		s.flush(flushTime)
		if waited := time.Since(began); waited != flushTime {
			t.Errorf("the end waited for %s", waited)
		}
		cancel() // the bubble does not end before all of them have
	})
}
