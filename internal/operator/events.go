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
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/recorder"
)

const (
	// maxEvents is how many events may wait, which takes 25 MiB. Only the deletion of
	// thousands of instances together causes more.
	maxEvents = 4000
	// flushTime is how long a stopping process waits for the last events.
	flushTime = time.Second
)

// reportingManager is a manager that writes events one at a time, and has the checks of the probes.
type reportingManager struct {
	ctrl.Manager
	sink        *eventSink
	broadcaster events.EventBroadcaster
	checks      checks
}

// newReportingManager has one sink for all families: maxEvents counts the events of all.
func newReportingManager(mgr ctrl.Manager) (*reportingManager, error) {
	client, err := eventsclient.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	sink := newEventSink(&events.EventSinkImpl{Interface: client})
	return &reportingManager{
		Manager: mgr, sink: sink, broadcaster: events.NewBroadcaster(sink),
		checks: checks{live: map[string]healthz.Checker{}, ready: map[string]healthz.Checker{}},
	}, nil
}

// AddHealthzCheck implements manager.Manager.
func (m *reportingManager) AddHealthzCheck(name string, check healthz.Checker) error {
	m.checks.live[name] = check
	return nil
}

// AddReadyzCheck implements manager.Manager.
func (m *reportingManager) AddReadyzCheck(name string, check healthz.Checker) error {
	m.checks.ready[name] = check
	return nil
}

// GetEventRecorder returns a recorder for a controller of this name.
func (m *reportingManager) GetEventRecorder(name string) recorder.EventRecorder {
	return m.recorder(m.GetScheme(), name)
}

// recorder returns one for objects whose kinds are in a scheme.
func (m *reportingManager) recorder(scheme *runtime.Scheme, name string) recorder.EventRecorder {
	return m.broadcaster.NewRecorder(scheme, name).(recorder.EventRecorder)
}

// Start returns when the manager has stopped and its last events are written or dropped.
func (m *reportingManager) Start(ctx context.Context) error {
	// Reconciliations that end after ctx emit events too.
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

// eventSink writes events one at a time. There are two events for each instance. In a burst players
// wait for their instances, and concurrent writes of events would delay them: when 500 events are
// recorded together, client-go alone sends 260 at a time (BenchmarkEvents).
type eventSink struct {
	events.EventSink
	// pending has an element for each event that waits or is being written, writing for the event that
	// is being written.
	pending, writing chan struct{}
	dropped          rate.Sometimes
}

func newEventSink(writes events.EventSink) *eventSink {
	return &eventSink{
		EventSink: writes, pending: make(chan struct{}, maxEvents), writing: make(chan struct{}, 1),
		dropped: rate.Sometimes{Interval: time.Minute},
	}
}

// Create writes an event, or drops it without an error when too many wait.
func (s *eventSink) Create(ctx context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	// The queue has a limit, because the API server may be slow for a long time: a dropped event is no loss of state,
	// as conditions report the same problem.
	select {
	case s.pending <- struct{}{}:
		defer func() { <-s.pending }()
	default:
		// One line a minute: a line for each dropped event would be a second flood.
		s.dropped.Do(func() {
			ctrl.Log.WithName("events").Info("too many events are pending: new events are dropped", "pending", maxEvents)
		})
		return event, nil
	}
	// One write at a time: the other events wait here, and count in pending.
	select {
	case s.writing <- struct{}{}:
		defer func() { <-s.writing }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return s.EventSink.Create(ctx, event)
}

// flush waits until no event is pending.
func (s *eventSink) flush(timeout time.Duration) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	// With every slot taken by this loop, no event is left in between. Events that come later are dropped.
	for range cap(s.pending) {
		select {
		case s.pending <- struct{}{}:
		case <-timer.C:
			return
		}
	}
}
