package challenge

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
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
	"github.com/bergctf/berg-operator/internal/kit/elapsed"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

const (
	// senders is how many messages wait for the broker at the same time, each of another
	// challenge. They cost no processor time, and nobody else waits for them.
	senders = 64
	// markDelay is how long an acknowledged message stays in the outbox: most often the next
	// change of the status takes it out, and costs no write of its own.
	markDelay = 2 * time.Second

	// The pauses between attempts to send a message of one challenge, and how many attempts
	// all make together, for a second, once the broker says no.
	firstSendPause, maxSendPause = 100 * time.Millisecond, 5 * time.Second
	maxAttempts                  = 200
)

// sender sends what the outboxes hold: of each challenge one message at a time, in their
// order. A broker that is away holds up nothing but messages.
type sender struct {
	*Reconciler
	pauses workqueue.TypedRateLimiter[ctrl.Request]
}

func (s *sender) setup(mgr ctrl.Manager) error {
	s.pauses = workqueue.NewTypedMaxOfRateLimiter(
		workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](firstSendPause, maxSendPause),
		&workqueue.TypedBucketRateLimiter[ctrl.Request]{Limiter: rate.NewLimiter(maxAttempts, maxAttempts)})
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
	// Of what others write at this moment an event comes: there is nothing to wait for.
	err := s.Client.Get(ctx, req.NamespacedName, c, client.DisableReadYourWritesConsistency)
	if err != nil {
		s.pauses.Forget(req)
		s.deliveries.forget(req.NamespacedName)
		return ctrl.Result{}, apply.IgnoreAbsent(err)
	}
	for _, m := range pending(&c.Status, s.deliveries.of(c).Acknowledged) {
		if err := s.send(ctx, c, m); err != nil {
			if ctx.Err() != nil {
				return ctrl.Result{RequeueAfter: firstSendPause}, nil //nolint:nilerr // it was cut off, nobody said no
			}
			unsendable.Inc()
			if why := s.Reason(err); s.deliveries.failed(c, why) {
				log.FromContext(ctx).Info("a message cannot be sent for now", "state", m.NewStatus, "reason", why)
				s.call(c, 0)
			}
			return ctrl.Result{RequeueAfter: s.pauses.When(req)}, nil
		}
		s.pauses.Forget(req)
		sent.Inc()
		messageDelays.Observe(elapsed.Since(m.Timestamp.Time, s.Clock.Now()).Seconds())
		delay := markDelay
		if mended := s.deliveries.acknowledged(c, m.Sequence); mended {
			delay = 0
		}
		s.call(c, delay)
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

// call has the controller that writes the status of a challenge look at it: at once where a
// deletion waits.
func (s *sender) call(c *hexactfv1.Challenge, delay time.Duration) {
	req := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(c)}
	// It may have been deleted since it was read.
	s.ending.add(req, 0)
	if c.DeletionTimestamp == nil {
		s.live.add(req, delay)
	}
}

// deliveries are what is known of the messages of challenges and stands in no status yet. Each
// is forgotten when its challenge is gone. Its zero value is ready for use.
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

// of returns what is known about a challenge.
func (d *deliveries) of(c *hexactfv1.Challenge) Delivery {
	d.mu.Lock()
	defer d.mu.Unlock()
	known := d.known(c)
	return Delivery{Off: d.off, Acknowledged: known.acknowledged, Problem: known.problem}
}

// known is called with the lock held. Nothing is known of a former challenge of that name.
func (d *deliveries) known(c *hexactfv1.Challenge) delivery {
	known := d.all[client.ObjectKeyFromObject(c)]
	if known.uid != c.UID {
		return delivery{uid: c.UID}
	}
	return known
}

func (d *deliveries) note(c *hexactfv1.Challenge, how func(*delivery)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	known := d.known(c)
	how(&known)
	if d.all == nil {
		d.all = map[types.NamespacedName]delivery{}
	}
	d.all[client.ObjectKeyFromObject(c)] = known
}

// acknowledged notes that the broker has a message, and reports whether messages were held up
// until then.
func (d *deliveries) acknowledged(c *hexactfv1.Challenge, sequence int64) (mended bool) {
	d.note(c, func(known *delivery) {
		mended = known.problem != ""
		known.acknowledged, known.problem = max(known.acknowledged, sequence), ""
	})
	return mended
}

// failed notes why a message was not sent, and reports whether that is news.
func (d *deliveries) failed(c *hexactfv1.Challenge, why string) (news bool) {
	d.note(c, func(known *delivery) {
		news = known.problem != why
		known.problem = why
	})
	return news
}

func (d *deliveries) forget(key types.NamespacedName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.all, key)
}

// calls takes requests to the queue of another controller. Before that has begun they are
// dropped: it begins by looking at everything.
type calls struct {
	queue atomic.Pointer[workqueue.TypedRateLimitingInterface[ctrl.Request]]
}

func (c *calls) source() source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
		c.queue.Store(&queue)
		return nil
	})
}

func (c *calls) add(req ctrl.Request, delay time.Duration) {
	if queue := c.queue.Load(); queue != nil {
		(*queue).AddAfter(req, delay)
	}
}
