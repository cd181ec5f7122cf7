package challenge

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kit/clockskew"
	"github.com/bergctf/berg-operator/internal/kit/finalizer"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// deletion ends challenges that are being deleted: it records that they are, waits until the
// platform was told, and lets them go. Kubernetes deletes what they own.
type deletion struct {
	*Reconciler
	pauses     *outcome.Backoff
	finalizers finalizer.Remover
	waits      waits
}

func (d *deletion) setup(mgr ctrl.Manager) error {
	d.pauses = outcome.NewBackoff()
	return ctrl.NewControllerManagedBy(mgr).
		Named("challenge-deletion").
		For(&hexactfv1.Challenge{}, builder.WithPredicates(changes, goneOr(isEnding))).
		WatchesRawSource(d.ending.source()).
		WatchesRawSource(clockskew.Source(d.Clock, handler.EnqueueRequestsFromMapFunc(d.which(isEnding)))).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: endingWorkers(d.Workers),
			ReconciliationTimeout:   reconcile.Timeout,
		}).
		Complete(reconcile.New(d.Clock, d.pauses, reconcileMetrics, d.reconcile))
}

// maxYield is how long the end of one challenge lets the deletions of others go first: a
// thousand take less. What one that is gone leaves to the garbage collector costs the API server more
// than its deletion.
const maxYield = 5 * time.Second

// endingWorkers is how many challenges the controller of deletions works on at once. More would
// end few of them sooner, and the API server would be slower for those that are started.
func endingWorkers(workers int) int { return max(1, workers/2) }

// reconcile brings the end of one challenge a step further.
func (d *deletion) reconcile(ctx context.Context, req ctrl.Request) (time.Duration, error) {
	c := &hexactfv1.Challenge{}
	if err := outcome.WrapNotFound(d.Client.Get(ctx, req.NamespacedName, c)); err != nil {
		if errors.Is(err, outcome.ErrGone) {
			d.finalizers.Forget(req.NamespacedName)
			d.waits.forget(req.NamespacedName)
		}
		return 0, err
	}
	d.pauses.ResetIfReplaced(req, c.UID)
	if c.DeletionTimestamp == nil || !controllerutil.ContainsFinalizer(c, hexactfv1.Finalizer) || d.finalizers.Done(c) {
		return 0, nil
	}
	if c.Status.CurrentStatus.State != hexactfv1.StateTerminating {
		// Of many that expire together, all are ended before the first one is cleared away.
		d.ends.GiveWay(ctx, maxYield)
	}
	return d.finalize(ctx, c, d.Clock.Now())
}

// finalize records that a challenge ends, and lets it go when its messages are acknowledged or
// KAFKA_DELETE_TIMEOUT is over. It needs neither the definition nor anything that the
// challenge owns.
func (d *deletion) finalize(ctx context.Context, c *hexactfv1.Challenge, now time.Time) (again time.Duration, err error) {
	known := d.deliveries.of(c)
	if c.Status.CurrentStatus.State == hexactfv1.StateTerminating && (known.Off || len(pending(&c.Status, known.Acknowledged)) == 0) {
		// That the last message was acknowledged is for nobody to read any more.
		return 0, d.finalizers.Remove(ctx, d.Client, c, hexactfv1.Finalizer)
	}
	before := c.DeepCopy()
	computeTerminating(c, known, now)
	// A status that is refused keeps nobody: it was told by an event.
	if err := d.patchStatus(ctx, before, c); err != nil && outcome.CauseOf(err) != outcome.Rejected {
		return 0, err
	}
	if before.Status.CurrentStatus.State != hexactfv1.StateTerminating {
		d.reportEnding(before, c, now)
	}
	left := pending(&c.Status, known.Acknowledged)
	if !known.Off && len(left) > 0 {
		remaining := waitsFor(c, d.waits.since(c, now), known, d.Config.Kafka.DeleteTimeout, now)
		if remaining > 0 {
			return remaining, nil // the sender calls when it is done, and when the broker says no
		}
		d.lose(ctx, c, known, len(left))
	}
	return 0, d.finalizers.Remove(ctx, d.Client, c, hexactfv1.Finalizer)
}

// waitsFor is how much longer a deletion waits for the broker; began is since when this process
// does. Who takes over from a process that was killed gives the broker its time anew: it may have
// been the operator that was away. But an operator that is killed again and again must not keep a
// challenge for ever: twice the time after the deletion was asked for, an attempt that has failed
// is the last one.
func waitsFor(c *hexactfv1.Challenge, began time.Time, known Delivery, patience time.Duration, now time.Time) time.Duration {
	remaining := began.Add(patience).Sub(now)
	if known.Problem != "" && c.DeletionTimestamp != nil {
		remaining = min(remaining, c.DeletionTimestamp.Add(2*patience).Sub(now))
	}
	return remaining
}

// lose tells of messages that the platform will not get.
func (d *deletion) lose(ctx context.Context, c *hexactfv1.Challenge, known Delivery, messages int) {
	if !d.waits.lost(c) {
		return // it was told before an attempt that failed
	}
	lost.Add(float64(messages))
	text := fmt.Sprintf("%d messages were not sent within KAFKA_DELETE_TIMEOUT (%s) and are lost; the last would have told that the challenge is deleted: %s",
		messages, d.Config.Kafka.DeleteTimeout, known.Problem)
	log.FromContext(ctx).Error(errors.New(known.Problem), "messages are lost", "messages", messages, "user", c.Status.User, "challengeId", c.Status.ChallengeID)
	reconcile.Warning(d.Events, c, hexactfv1.ReasonMessagesLost, actionDelete, text)
}

// waits are since when deletions wait for the broker, as far as this process knows. Each is
// forgotten when the challenge is gone. Its zero value is ready for use.
type waits struct {
	mu  sync.Mutex
	all map[types.NamespacedName]vigil
}

type vigil struct {
	uid   types.UID
	since time.Time
	lost  bool
}

// since returns when the wait for a challenge began, which is now if it did not.
func (w *waits) since(c *hexactfv1.Challenge, now time.Time) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := client.ObjectKeyFromObject(c)
	known, ok := w.all[key]
	if !ok || known.uid != c.UID {
		known = vigil{uid: c.UID, since: now}
		if w.all == nil {
			w.all = map[types.NamespacedName]vigil{}
		}
		w.all[key] = known
	}
	return known.since
}

// lost notes that the messages of a challenge were given up, and reports whether that is news.
func (w *waits) lost(c *hexactfv1.Challenge) (news bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := client.ObjectKeyFromObject(c)
	known := w.all[key]
	news = !known.lost
	known.lost = true
	w.all[key] = known
	return news
}

func (w *waits) forget(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.all, key)
}
