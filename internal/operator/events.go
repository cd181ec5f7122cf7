package operator

import (
	"context"
	"time"

	"golang.org/x/time/rate"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	eventsclient "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/recorder"
)

const (
	// maxEvents may wait at the same time, which takes 25 MiB. More events occur only when
	// thousands of instances are deleted together.
	maxEvents = 4000
	// flushTime is how long the process waits for the last events when it stops.
	flushTime = time.Second
)

// reportingManager is a manager whose events do not compete with the work that they report.
type reportingManager struct {
	ctrl.Manager
	sink        *eventSink
	broadcaster events.EventBroadcaster
}

func newReportingManager(mgr ctrl.Manager) (*reportingManager, error) {
	client, err := eventsclient.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	sink := newEventSink(&events.EventSinkImpl{Interface: client})
	return &reportingManager{Manager: mgr, sink: sink, broadcaster: events.NewBroadcaster(sink)}, nil
}

// GetEventRecorder returns a recorder for a controller of this name.
func (m *reportingManager) GetEventRecorder(name string) recorder.EventRecorder {
	return m.recorder(m.GetScheme(), name)
}

// recorder returns one for objects whose kinds are in a scheme.
func (m *reportingManager) recorder(scheme *runtime.Scheme, name string) recorder.EventRecorder {
	return m.broadcaster.NewRecorder(scheme, name).(recorder.EventRecorder)
}

// Start returns when the manager has stopped and its last events are written, or are given
// up.
func (m *reportingManager) Start(ctx context.Context) error {
	// Reconciliations that end after ctx also record events.
	recording, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	if err := m.broadcaster.StartRecordingToSinkWithContext(recording); err != nil {
		return err
	}
	stopLogging, err := m.broadcaster.StartLogging(ctrl.Log.WithName("events").V(1))
	if err != nil {
		return err
	}
	defer stopLogging()
	err = m.Manager.Start(ctx)
	m.sink.flush(flushTime)
	return err
}

// eventSink writes events one at a time: when many instances start, the API server is short of
// time, and there are two events for each instance.
type eventSink struct {
	events.EventSink
	// places are taken by the events that wait or are written, writer by the one that is written.
	places, writer chan struct{}
	dropped        rate.Sometimes
}

func newEventSink(writes events.EventSink) *eventSink {
	return &eventSink{
		EventSink: writes,
		places:    make(chan struct{}, maxEvents), writer: make(chan struct{}, 1),
		dropped: rate.Sometimes{Interval: time.Minute},
	}
}

// Create writes an event, or drops it without an error when too many wait.
func (s *eventSink) Create(ctx context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	select {
	case s.places <- struct{}{}:
		defer func() { <-s.places }()
	default:
		s.dropped.Do(func() {
			ctrl.Log.WithName("events").Info("too many events wait to be written: new ones are dropped", "waiting", maxEvents)
		})
		return event, nil
	}
	select {
	case s.writer <- struct{}{}:
		defer func() { <-s.writer }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return s.EventSink.Create(ctx, event)
}

// flush waits until no event waits any more.
func (s *eventSink) flush(timeout time.Duration) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for range cap(s.places) {
		select {
		case s.places <- struct{}{}:
		case <-timer.C:
			return
		}
	}
}
