package challenge

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/backoff"
	"github.com/bergctf/berg-operator/internal/kit/elapsed"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

const (
	// senders is how many messages are sent concurrently, each of another challenge. They cost no CPU time, and no
	// other work waits for them.
	senders = 64
	// outboxDelay is how long an acknowledged message stays in the outbox: most often the next change of the status
	// removes it, which saves a write.
	outboxDelay = 2 * time.Second

	// maxAttempts is the attempts a second of all challenges together after a failure.
	maxAttempts = 200
)

// sendDelays are the delays between attempts to send a message of one challenge.
var sendDelays = backoff.Exponential{First: 100 * time.Millisecond, Max: 5 * time.Second}

// sender sends the messages of the outboxes: one at a time of each challenge, in their order. A broker that does not
// answer delays only messages, and deletions for KAFKA_DELETE_TIMEOUT at most.
type sender struct {
	*Reconciler
	delays workqueue.TypedRateLimiter[ctrl.Request]
}

func (s *sender) setup(mgr ctrl.Manager) error {
	s.delays = backoff.NewLimiter[ctrl.Request](sendDelays, maxAttempts)
	return ctrl.NewControllerManagedBy(mgr).
		Named("challenge-messages").
		For(&hexactfv1.Challenge{}, builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(e event.CreateEvent) bool { return holdsMessages(e.Object) },
			UpdateFunc: func(e event.UpdateEvent) bool {
				return holdsMessages(e.ObjectNew) && (recorded(e.ObjectOld) != recorded(e.ObjectNew) || reconcile.Replaced.Update(e))
			},
		})).
		WithOptions(controller.Options{MaxConcurrentReconciles: senders, ReconciliationTimeout: reconcile.Timeout}).
		Complete(reconcile.Drain(reconcileMetrics, s))
}

func holdsMessages(o client.Object) bool {
	m := o.(*hexactfv1.Challenge).Status.Messages
	return m != nil && len(m.Outbox) > 0
}

func recorded(o client.Object) int64 {
	if m := o.(*hexactfv1.Challenge).Status.Messages; m != nil {
		return m.Recorded
	}
	return 0
}

// Reconcile sends the messages of one challenge that were not acknowledged yet.
func (s *sender) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	c := &hexactfv1.Challenge{}
	// A write in progress triggers an event, so there is nothing to wait for.
	err := s.Client.Get(ctx, req.NamespacedName, c, client.DisableReadYourWritesConsistency)
	if err != nil {
		s.delays.Forget(req)
		s.deliveries.forget(req.NamespacedName)
		return ctrl.Result{}, apply.IgnoreAbsent(err)
	}
	// The cached outbox may still hold messages that the broker has acknowledged: deliveries knows them until the
	// status does.
	for _, m := range pending(&c.Status, s.deliveries.get(c).Acknowledged) {
		// In their order, and none after a failure: a consumer must not see a later state before an earlier one.
		if err := s.send(ctx, c, m); err != nil {
			if ctx.Err() != nil {
				return ctrl.Result{RequeueAfter: sendDelays.First}, nil //nolint:nilerr // the attempt was cut off, the broker did not refuse
			}
			unsendable.Inc()
			if cause := s.Reason(err); s.deliveries.failed(c, cause) {
				log.FromContext(ctx).Info("sending a message failed, trying again", "state", m.NewStatus, "reason", cause)
				s.queue.addAfter(req, 0)
			}
			return ctrl.Result{RequeueAfter: s.delays.When(req)}, nil
		}
		s.delays.Forget(req)
		sent.Inc()
		messageDelays.Observe(elapsed.Since(m.Timestamp.Time, s.Clock.Now()).Seconds())
		delay := outboxDelay
		if recovered := s.deliveries.acknowledged(c, m.Sequence); recovered || c.DeletionTimestamp != nil {
			delay = 0 // a condition changes, or a deletion waits
		}
		s.queue.addAfter(req, delay)
	}
	return ctrl.Result{}, nil
}

func (s *sender) send(ctx context.Context, c *hexactfv1.Challenge, m hexactfv1.Message) error {
	key, value, err := encode(c, m)
	if err != nil {
		return fmt.Errorf("encode the message: %w", err)
	}
	return s.Publisher.Publish(ctx, key, value)
}

// deliveries records the results of sending messages until the status of their challenge has them. A record is
// dropped when its challenge is gone. The zero value is ready for use.
type deliveries struct {
	off bool
	mu  sync.Mutex
	all map[types.NamespacedName]delivery
}

type delivery struct {
	uid          types.UID
	acknowledged int64
	problem      string
}

// get returns the delivery of a challenge.
func (d *deliveries) get(c *hexactfv1.Challenge) Delivery {
	d.mu.Lock()
	defer d.mu.Unlock()
	known := d.known(c)
	return Delivery{Off: d.off, Acknowledged: known.acknowledged, Problem: known.problem}
}

// known is called with the lock held. The record of an earlier challenge of that name does not count.
func (d *deliveries) known(c *hexactfv1.Challenge) delivery {
	known := d.all[client.ObjectKeyFromObject(c)]
	if known.uid != c.UID {
		return delivery{uid: c.UID}
	}
	return known
}

func (d *deliveries) update(c *hexactfv1.Challenge, change func(*delivery)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	known := d.known(c)
	change(&known)
	if d.all == nil {
		d.all = map[types.NamespacedName]delivery{}
	}
	d.all[client.ObjectKeyFromObject(c)] = known
}

// acknowledged records that the broker has a message, and reports whether the attempt before had failed.
func (d *deliveries) acknowledged(c *hexactfv1.Challenge, sequence int64) (recovered bool) {
	d.update(c, func(known *delivery) {
		recovered = known.problem != ""
		known.acknowledged, known.problem = max(known.acknowledged, sequence), ""
	})
	return recovered
}

// failed records why a message was not sent, and reports whether the cause differs from the last one.
func (d *deliveries) failed(c *hexactfv1.Challenge, cause string) (fresh bool) {
	d.update(c, func(known *delivery) {
		fresh = known.problem != cause
		known.problem = cause
	})
	return fresh
}

func (d *deliveries) forget(key types.NamespacedName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.all, key)
}

// delayedQueue adds requests to the queue of the controller of challenges. Before the controller has started they are
// dropped: it starts with a reconciliation of every challenge.
type delayedQueue struct {
	queue atomic.Pointer[workqueue.TypedRateLimitingInterface[ctrl.Request]]
}

func (d *delayedQueue) source() source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
		d.queue.Store(&queue)
		return nil
	})
}

func (d *delayedQueue) addAfter(req ctrl.Request, delay time.Duration) {
	if queue := d.queue.Load(); queue != nil {
		(*queue).AddAfter(req, delay)
	}
}
