package livepage

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	toolscache "k8s.io/client-go/tools/cache"
)

const (
	// maxEventsEach is the maximum number of stored events of one instance, and maxEvents of all instances together,
	// about 8 MiB. When maxEvents is exceeded, all events of the instance that had the earliest first event are
	// removed.
	maxEventsEach = 30
	maxEvents     = 16384
	// maxEventText is the maximum length of a stored message, in bytes.
	maxEventText = 500
	// eventPage is the number of events in one answer of the API server.
	eventPage = 500
)

// Event is an event of an instance.
type Event struct {
	// Warning, Reason, and Message as the operator wrote it, without flags.
	Warning         bool
	Reason, Message string
	// Count is the number of occurrences between First and Last.
	Count       int32
	First, Last time.Time
	uid         types.UID
}

// eventRing stores the latest events of instances, including deleted ones, and for longer than the API server keeps
// them. It is the store of reflectors, so that nothing else of an event stays in memory.
type eventRing struct {
	mu         sync.Mutex
	byInstance map[types.UID][]Event
	// order has the instances in the order of their first event.
	order []types.UID
	total int
	// seen is called, without the lock, with the instance of each event.
	seen func(instance types.UID)
}

func newEventRing(seen func(types.UID)) *eventRing {
	return &eventRing{byInstance: map[types.UID][]Event{}, seen: seen}
}

// follow fills the ring with the events of instances of a namespace, until ctx is done.
func (r *eventRing) follow(ctx context.Context, client kubernetes.Interface, namespace string) {
	selector := fields.OneTermEqualSelector("involvedObject.kind", "ChallengeInstance")
	watched := toolscache.NewListWatchFromClient(client.CoreV1().RESTClient(), "events", namespace, selector)
	reflector := toolscache.NewReflectorWithOptions(watched, &corev1.Event{}, r, toolscache.ReflectorOptions{Name: "events of " + namespace})
	reflector.WatchListPageSize = eventPage
	reflector.RunWithContext(ctx)
}

// newEvent converts an event. Old and new clients set different fields for its times and count: the series has
// priority, then the timestamps, then eventTime.
func newEvent(e *corev1.Event) Event {
	out := Event{
		Warning: e.Type == corev1.EventTypeWarning, Reason: e.Reason, Message: beginning(e.Message, maxEventText), Count: max(e.Count, 1), uid: e.UID,
		First: e.EventTime.Time, Last: e.EventTime.Time,
	}
	if !e.FirstTimestamp.IsZero() {
		out.First, out.Last = e.FirstTimestamp.Time, e.LastTimestamp.Time
	}
	if s := e.Series; s != nil {
		out.Count, out.Last = max(s.Count, 1), s.LastObservedTime.Time
	}
	if out.First.IsZero() {
		out.First = e.CreationTimestamp.Time
	}
	if out.Last.Before(out.First) {
		out.Last = out.First
	}
	return out
}

// beginning returns at most size bytes of a text.
func beginning(text string, size int) string {
	if len(text) <= size {
		return text
	}
	for size > 0 && text[size]&0xC0 == 0x80 { // not within a character
		size--
	}
	return text[:size] + "…"
}

// Add implements the store of a reflector.
func (r *eventRing) Add(object any) error {
	e, ok := object.(*corev1.Event)
	if !ok || e.InvolvedObject.UID == "" {
		return nil
	}
	r.put(e.InvolvedObject.UID, newEvent(e))
	r.seen(e.InvolvedObject.UID)
	return nil
}

// Update implements the store of a reflector.
func (r *eventRing) Update(object any) error { return r.Add(object) }

// Delete implements the store of a reflector. The API server forgets an event after an hour: the ring keeps it.
func (*eventRing) Delete(any) error { return nil }

// Replace implements the store of a reflector. A list after a gap of the watch adds new events, and takes nothing away.
func (r *eventRing) Replace(all []any, _ string) error {
	for _, object := range all {
		if err := r.Add(object); err != nil {
			return err
		}
	}
	return nil
}

// Resync implements the store of a reflector.
func (*eventRing) Resync() error { return nil }

// put stores an event, and replaces its earlier version. Beyond the limits it first drops the oldest events of the
// instance, then whole instances.
func (r *eventRing) put(instance types.UID, e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known, there := r.byInstance[instance]
	if n := slices.IndexFunc(known, func(k Event) bool { return k.uid == e.uid }); n >= 0 {
		known[n] = e
		return
	}
	if !there {
		r.order = append(r.order, instance)
	}
	r.total++
	known = append(known, e)
	if over := len(known) - maxEventsEach; over > 0 {
		known, r.total = slices.Delete(known, 0, over), r.total-over
	}
	r.byInstance[instance] = known
	for r.total > maxEvents {
		r.total -= len(r.byInstance[r.order[0]])
		delete(r.byInstance, r.order[0])
		r.order = r.order[1:]
	}
}

// List returns the events of an instance, the oldest first.
func (r *eventRing) List(instance types.UID) []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := slices.Clone(r.byInstance[instance])
	slices.SortStableFunc(all, func(a, b Event) int { return a.Last.Compare(b.Last) })
	return all
}
