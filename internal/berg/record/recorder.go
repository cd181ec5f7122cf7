package record

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	clientcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/access"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

const (
	// captures is how many instances are read concurrently, and queued how many wait for it. Further instances get no
	// log: when a thousand expire together, freeing their capacity matters more than their logs.
	captures = 8
	queued   = 32
	// timeout is how long the namespace of an instance waits at most, in the queue and while its
	// logs are read.
	timeout = 2 * time.Second
	// writers is how many records are written at the same time, and unwritten how many wait for it.
	writers   = 4
	unwritten = 4096
	// unwrittenBytes is the maximum size of the waiting records. Beyond that they wait without logs.
	unwrittenBytes = 24 << 20
	// drainTime is how long waiting records are written when the operator stops.
	drainTime = 5 * time.Second
)

// attempts are the delays between attempts to write a record, half a minute together.
var attempts = wait.Backoff{Duration: 250 * time.Millisecond, Factor: 3, Jitter: 0.2, Steps: 6, Cap: 20 * time.Second}

// Why a record is not complete.
const (
	crowded = "Too many instances ended at the same time: their logs were not read"
	late    = "The operator was restarted, or began to keep records, while the instance was being taken away: what had gone by then is missing"
)

// Recorder keeps the records of instances that end. It is a Runnable that only the leader runs.
type Recorder struct {
	// Client reads the metadata of records from the cache, and writes.
	Client client.Client
	// Live reads pods from the API server, as they are.
	Live   client.Reader
	Logs   clientcorev1.PodsGetter
	Access *access.Access
	Clock  clock.PassiveClock
	Config config.Record

	once     sync.Once
	waiting  chan *ended
	finished chan written
	bytes    atomic.Int64

	// mu guards known.
	mu    sync.Mutex
	known map[types.NamespacedName]deletion
}

// deletion is the state in memory of an instance that is being deleted.
type deletion struct {
	uid types.UID
	// ready: its namespace may go.
	ready bool
}

// ended is an instance whose end is to be recorded.
type ended struct {
	key     types.NamespacedName
	ending  challengeinstance.Ending
	since   time.Time
	enqueue func()
}

// written is a record that is to be written.
type written struct {
	record *bergv1.ChallengeInstanceRecord
	bytes  int64
}

var (
	_ challengeinstance.Recorder     = &Recorder{}
	_ manager.LeaderElectionRunnable = &Recorder{}
)

func (k *Recorder) begin() {
	k.once.Do(func() {
		k.waiting, k.finished = make(chan *ended, queued), make(chan written, unwritten)
		k.known = map[types.NamespacedName]deletion{}
	})
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (k *Recorder) NeedLeaderElection() bool { return true }

// Keep implements challengeinstance.Recorder. It never waits: it reports whether the namespace may be
// deleted now, and calls enqueue once it may. The memory is lost at a restart. A successor reads the pods again if the namespace
// is still there, and finds a record that was written.
func (k *Recorder) Keep(ctx context.Context, key types.NamespacedName, uid types.UID, about func() challengeinstance.Ending, enqueue func()) bool {
	// A controller may call it before Start.
	k.begin()
	k.mu.Lock()
	known := k.known[key]
	k.mu.Unlock()
	// Each deletion is queued once, however often it is reconciled while it waits.
	if known.uid == uid {
		return known.ready
	}
	// An earlier leader may have written the record and was killed before the namespace was deleted.
	if k.exists(ctx, uid) {
		k.note(key, deletion{uid, true})
		return true
	}
	e := about()
	if e.Namespace == nil {
		seen := Seen{}
		if e.Instance.Status.StartedAt != nil {
			seen.Incomplete = late
		}
		k.note(key, deletion{uid, true})
		k.hand(ctx, compose(e, seen, k.Config, k.Clock.Now()))
		return true
	}
	// A namespace that is being deleted already does not wait.
	ready := e.Namespace.DeletionTimestamp != nil
	k.note(key, deletion{uid, ready})
	select {
	case k.waiting <- &ended{key, e, k.Clock.Now(), enqueue}:
		return ready
	default:
		// The queue is full: a deletion is more important than the logs of its record.
		k.note(key, deletion{uid, true})
		omitted.Inc()
		k.hand(ctx, compose(e, Seen{Incomplete: crowded}, k.Config, k.Clock.Now()))
		return true
	}
}

// Forget implements challengeinstance.Recorder.
func (k *Recorder) Forget(key types.NamespacedName) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.known, key)
}

func (k *Recorder) note(key types.NamespacedName, e deletion) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.known[key] = e
}

// exists reports whether the cache shows the record of an instance: another process may have
// written it.
func (k *Recorder) exists(ctx context.Context, uid types.UID) bool {
	err := k.Client.Get(ctx, types.NamespacedName{Namespace: k.Config.Namespace, Name: string(uid)}, metadata(),
		client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency)
	return err == nil
}

// metadata returns a record of which only the metadata is read: the logs of all records would be
// many times as large as the cached objects of all live instances.
func metadata() *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(bergv1.GroupVersion.WithKind("ChallengeInstanceRecord"))
	return m
}

// Start implements manager.Runnable: it observes ending instances, and writes records, until ctx is
// done, and then writes the waiting ones.
func (k *Recorder) Start(ctx context.Context) error {
	k.begin()
	var group sync.WaitGroup
	for range captures {
		group.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case e := <-k.waiting:
					k.update(ctx, e)
				}
			}
		})
	}
	for range writers {
		group.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case w := <-k.finished:
					k.write(ctx, w)
				}
			}
		})
	}
	group.Wait()
	// Only for a bounded time: a process that is asked to stop must not wait for a slow API server.
	draining, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer cancel()
	// No writer runs any more, so an empty channel means that every record is written.
	for {
		select {
		case w := <-k.finished:
			k.write(draining, w)
		default:
			return nil
		}
	}
}

// update observes an instance, releases its namespace for deletion, and queues its record.
func (k *Recorder) update(ctx context.Context, e *ended) {
	looking, cancel := context.WithTimeout(ctx, max(0, timeout-k.Clock.Since(e.since)))
	seen := k.see(looking, e.ending)
	cancel()
	if ctx.Err() != nil {
		return // the next leader records it: the namespace still exists
	}
	// The namespace is released before the record is written: the record is in memory, and a kill loses it.
	k.note(e.key, deletion{e.ending.Instance.UID, true})
	e.enqueue()
	captureTimes.Observe(k.Clock.Since(e.since).Seconds())
	k.hand(ctx, compose(e.ending, seen, k.Config, k.Clock.Now()))
}

// hand queues a record for the writers. It does not wait: a deletion must not depend on a slow write.
func (k *Recorder) hand(ctx context.Context, r *bergv1.ChallengeInstanceRecord) {
	w := written{r, sizeAsWritten(partialMetadata(r))}
	// The bytes are added before they are compared, so that concurrent calls cannot exceed the limit together.
	if k.bytes.Add(w.bytes) > unwrittenBytes {
		k.bytes.Add(-w.bytes)
		withoutLogs(r, "The API server accepted records too slowly: the log was dropped")
		w.bytes = sizeAsWritten(partialMetadata(r))
		k.bytes.Add(w.bytes)
	}
	select {
	case k.finished <- w:
	default:
		k.bytes.Add(-w.bytes)
		k.lost(ctx, r, reasonCrowded, nil)
	}
}

func partialMetadata(r *bergv1.ChallengeInstanceRecord) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: r.ObjectMeta}
}

// write writes a record, or gives it up: it keeps no instance. The name is the UID of the instance, so a repeated write meets the
// first one.
func (k *Recorder) write(ctx context.Context, w written) {
	defer k.bytes.Add(-w.bytes)
	var last error
	tries := 0
	err := wait.ExponentialBackoffWithContext(ctx, attempts, func(ctx context.Context) (bool, error) {
		// Nothing reads the whole record from a cache, which could wait for it.
		tries++
		// Create writes the answer into its argument: the next attempt needs the record as it was.
		last = k.Client.Create(ctx, w.record.DeepCopy(), client.DisableReadYourWritesConsistency)
		switch {
		case last == nil:
			records.Inc()
			return true, nil
		case apierrors.IsAlreadyExists(last):
			last = nil // this one, before the operator was killed
			return true, nil
		case refusedForGood(last, tries):
			return false, last
		default:
			return false, nil
		}
	})
	if err != nil && last == nil {
		last = err
	}
	if last != nil {
		k.lost(ctx, w.record, errorReason(last), last)
	}
}

// refusedForGood reports whether another attempt is in vain after so many: the namespace is
// missing, a right, or the definition. An API server that has just started knows no roles for a
// moment, so that only the fourth time, after three seconds and more, a right counts as missing.
func refusedForGood(err error, tries int) bool {
	switch {
	case apierrors.IsForbidden(err):
		return tries >= 4
	default:
		return apierrors.IsNotFound(err) || outcome.Classify(err) == outcome.Rejected
	}
}

// errorReason returns the API server's reason as a word. The message of an error may repeat the record.
func errorReason(err error) string {
	if reason := apierrors.ReasonForError(err); reason != metav1.StatusReasonUnknown {
		return string(reason)
	}
	return reasonNoAnswer
}

func (k *Recorder) lost(ctx context.Context, r *bergv1.ChallengeInstanceRecord, reason string, err error) {
	refused.WithLabelValues(reason).Inc()
	said := ""
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		said = beginning(err.Error(), 300) // names, and no content
	}
	log.FromContext(ctx).Info("The record of an instance is not written; the instance ends without it",
		"instance", r.Annotations[bergv1.AnnotationInstance], "namespace", k.Config.Namespace, "reason", reason, "said", said)
}
