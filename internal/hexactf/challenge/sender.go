package challenge

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/backoff"
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

// sender sends the messages of the outboxes: one at a time of each challenge, in their order. A broker that does not
// answer delays only messages, and deletions for KAFKA_DELETE_TIMEOUT at most. The queue gives a challenge to one worker at a
// time, so its messages never overtake each other.
type sender struct {
	*Reconciler
	delays workqueue.TypedRateLimiter[ctrl.Request]
}

// setup has workers of its own, so that a broker that does not answer delays no challenge.
func (s *sender) setup(mgr ctrl.Manager) error {
	s.delays = backoff.NewLimiter[ctrl.Request](sendDelays, maxAttempts)
	return ctrl.NewControllerManagedBy(mgr).
		Named("challenge-messages").
		For(&hexactfv1.Challenge{}, builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(e event.CreateEvent) bool { return holdsMessages(e.Object) },
			UpdateFunc: func(e event.UpdateEvent) bool {
				// recorded grows with each message, so that the removal of acknowledged messages causes no attempt.
				return holdsMessages(e.ObjectNew) && (recorded(e.ObjectOld) != recorded(e.ObjectNew) || reconcile.Replaced.Update(e))
			},
		})).
		WatchesRawSource(s.endings.source()).
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

// Reconcile sends the messages of one challenge that were not acknowledged yet. What it sends comes from the status and from
// Leases alone. It writes no status: the controller of challenges removes acknowledged messages.
func (s *sender) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	c := &hexactfv1.Challenge{}
	// A write in progress triggers an event, so there is nothing to wait for.
	err := s.Client.Get(ctx, req.NamespacedName, c, client.DisableReadYourWritesConsistency)
	if apply.IgnoreAbsent(err) != nil {
		return ctrl.Result{}, err
	}
	gone := err != nil
	// A consumer must read the end of an earlier challenge before the beginning of the next one.
	former, ready := s.endings.find(req.NamespacedName, c.UID)
	if !ready {
		return ctrl.Result{RequeueAfter: sendDelays.First}, nil
	}
	for _, stored := range former {
		if err := s.sendEnding(ctx, stored); err != nil {
			return ctrl.Result{RequeueAfter: s.delays.When(req)}, nil //nolint:nilerr // it was counted and logged
		}
	}
	if gone {
		s.delays.Forget(req)
		s.deliveries.forget(req.NamespacedName)
		return ctrl.Result{}, nil //nolint:nilerr // the challenge is gone
	}
	// The cached outbox may still hold messages that the broker has acknowledged: deliveries knows them until the
	// status does.
	messages := pending(&c.Status, s.deliveries.get(c).Acknowledged)
	if c.DeletionTimestamp != nil {
		// Deleted is sent from its Lease, when the name is free.
		messages = pendingBefore(&c.Status, s.deliveries.get(c).Acknowledged)
	}
	for _, m := range messages {
		// In their order, and none after a failure: a consumer must not see a later state before an earlier one.
		if err := s.send(ctx, c, m); err != nil {
			if ctx.Err() != nil {
				return ctrl.Result{RequeueAfter: sendDelays.First}, nil //nolint:nilerr // the attempt was cut off, the broker did not refuse
			}
			unsendable.Inc()
			if cause := s.Reason(err); s.deliveries.failed(c, cause) {
				log.FromContext(ctx).Info("sending a message failed, trying again", "state", m.NewStatus, "reason", cause)
				// The condition about messages changes.
				s.queue.addAfter(req, 0)
			}
			return ctrl.Result{RequeueAfter: s.delays.When(req)}, nil
		}
		s.delays.Forget(req)
		sent.Inc()
		messageDelays.Observe(reconcile.Elapsed(m.Timestamp.Time, s.Clock.Now()).Seconds())
		delay := outboxDelay
		if recovered := s.deliveries.acknowledged(c, m.Sequence); recovered || c.DeletionTimestamp != nil {
			delay = 0 // a condition changes, or a deletion waits
		}
		// Only the controller of challenges writes the status, so it removes the message from the outbox.
		s.queue.addAfter(req, delay)
	}
	return ctrl.Result{}, nil
}

// sendEnding sends the message about the end of a challenge whose name is free.
func (s *sender) sendEnding(ctx context.Context, stored ending) error {
	if !stored.sent {
		if err := s.Publisher.Publish(ctx, stored.key, []byte(stored.value)); err != nil {
			if ctx.Err() == nil {
				unsendable.Inc()
				log.FromContext(ctx).V(1).Info("sending a message failed, trying again", "state", hexactfv1.StateDeleted, "reason", s.Reason(err))
			}
			return err
		}
		sent.Inc()
		messageDelays.Observe(reconcile.Elapsed(stored.recorded, s.Clock.Now()).Seconds())
	}
	// If the process ends before the Lease is deleted, its successor sends the message again: a consumer may read it twice.
	return s.endings.acknowledged(ctx, stored)
}

func (s *sender) send(ctx context.Context, c *hexactfv1.Challenge, m hexactfv1.Message) error {
	key, value, err := encode(c, m)
	if err != nil {
		return fmt.Errorf("encode the message: %w", err)
	}
	return s.Publisher.Publish(ctx, key, value)
}
