package operator

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
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

func TestUnwrittenEventsDoNotDelayTheStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		s := newEventSink(&slowSink{began: began})
		emit(ctx, s, 100)
		s.flush(flushTime)
		if waited := time.Since(began); waited != flushTime {
			t.Errorf("the stop waited for %s", waited)
		}
		cancel() // the bubble does not end before all of them have
	})
}

// countingSink counts how many events are written concurrently, each of which takes a moment.
type countingSink struct {
	events.EventSink
	writing, most atomic.Int64
	all           sync.WaitGroup
}

func (s *countingSink) Create(_ context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	defer s.all.Done()
	now := s.writing.Add(1)
	defer s.writing.Add(-1)
	for most := s.most.Load(); now > most && !s.most.CompareAndSwap(most, now); most = s.most.Load() {
	}
	<-time.After(time.Millisecond)
	return e, nil
}

// BenchmarkEvents records 500 events together, as many as 250 instances have, by the broadcaster of client-go as it is, and by the one of the
// operator. What counts is how many requests the API server gets for them while it builds the instances.
func BenchmarkEvents(b *testing.B) {
	for name, wrap := range map[string]func(events.EventSink) events.EventSink{
		"client-go": func(s events.EventSink) events.EventSink { return s },
		"operator":  func(s events.EventSink) events.EventSink { return newEventSink(s) },
	} {
		b.Run(name, func(b *testing.B) {
			var most int64
			for b.Loop() {
				sink := &countingSink{}
				broadcaster := events.NewBroadcaster(wrap(sink))
				if err := broadcaster.StartRecordingToSinkWithContext(b.Context()); err != nil {
					b.Fatal(err)
				}
				recorder := broadcaster.NewRecorder(clientgoscheme.Scheme, "benchmark")
				for n := range 500 {
					sink.all.Add(1)
					object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint(n), UID: types.UID(fmt.Sprint(n))}}
					recorder.Eventf(object, nil, corev1.EventTypeNormal, "Created", "Create", "created")
				}
				sink.all.Wait()
				broadcaster.Shutdown()
				most = max(most, sink.most.Load())
			}
			b.ReportMetric(float64(most), "requests-at-a-time")
		})
	}
}
