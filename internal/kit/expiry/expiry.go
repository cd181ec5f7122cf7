// Package expiry deletes custom resources when they expire: within a second of it, also
// when a thousand expire at once, while others are being made, right after a restart and
// after the clock was set.
//
// A Controller has a queue and workers of its own, so that an expiry never waits for what
// is being made. It reads a resource, comes back when it expires, and asks for its
// deletion; what belongs to the resource is for others to clean up. It writes nothing
// else, and a resource that has not expired costs no request.
//
// A room gives it functions, of which Due decides. A kind that lives for a duration from a
// start that is written once, and that may be exempted, has
//
//	Due: func(c *Challenge, now time.Time) (Reason, time.Time) {
//		if c.Status.Shared || c.Status.StartedAt == nil {
//			return "", time.Time{} // it does not expire, or not yet
//		}
//		at := c.Status.StartedAt.Add(c.Status.Duration.Duration)
//		if now.Before(at) {
//			return "", at
//		}
//		return TimeOver, at
//	},
//	End: func(ctx context.Context, c *Challenge, _ Reason) error { return apply.Delete(ctx, client, c) },
//
// where the duration, be it half an hour or a second, stands in the resource itself: one
// that comes from another object, as from a definition, is to be copied into the status at
// the start. A change of another object leads to no look.
package expiry

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/clockskew"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// Controller deletes the resources of one kind, for reasons of type R. What is not said to
// be optional must be set.
type Controller[T client.Object, R ~string] struct {
	// Name of the controller, unique in the process.
	Name string
	// New returns an empty resource, List an empty list of them.
	New  func() T
	List func() client.ObjectList
	// Client reads from the cache.
	Client client.Client
	Clock  clock.PassiveClock
	// Workers are how many resources are worked on at once.
	Workers int
	// Metrics count the failures.
	Metrics *reconcile.Metrics

	// Due returns why a live resource must be deleted now, "" if it need not; and when it
	// expires, which is after now if it need not be deleted yet, and the zero time if it
	// never does. It is called often and makes no request.
	Due func(resource T, now time.Time) (why R, at time.Time)
	// Moves reports whether Due may say something else after an update than before.
	Moves func(before, after T) bool
	// End asks for the deletion of exactly this resource. A conflict has it looked at
	// again at once; that it is gone is no error. Nothing that its other errors say must
	// be kept from the log.
	End func(ctx context.Context, resource T, why R) error
	// Ended is called when the deletion of a resource was asked for. Optional.
	Ended func(resource T, why R)
	// Blocked is called after each attempt when a resource could not be deleted for
	// longer than a brief failure takes, now being the time of the attempt. Optional.
	Blocked func(ctx context.Context, resource T, why R, err error, now time.Time)

	delays delays
}

// SetupWithManager opens the watch.
func (c *Controller[T, R]) SetupWithManager(mgr ctrl.Manager) error {
	c.delays = newDelays()
	return ctrl.NewControllerManagedBy(mgr).
		Named(c.Name).
		For(c.New(), builder.WithPredicates(predicate.Funcs{
			DeleteFunc: func(event.DeleteEvent) bool { return false },
			UpdateFunc: func(u event.UpdateEvent) bool { return c.Moves(u.ObjectOld.(T), u.ObjectNew.(T)) },
		})).
		WatchesRawSource(clockskew.Source(c.Clock, handler.EnqueueRequestsFromMapFunc(c.everyLive))).
		WithOptions(controller.Options{MaxConcurrentReconciles: c.Workers, ReconciliationTimeout: reconcile.Timeout}).
		Complete(reconcile.Drain(c.Metrics, c))
}

func (c *Controller[T, R]) everyLive(ctx context.Context, _ client.Object) []ctrl.Request {
	return reconcile.Requests(ctx, c.Client, c.List(), func(o client.Object) bool { return o.GetDeletionTimestamp() == nil })
}

// Reconcile deletes a resource that is due, and comes back when it will be. The pause
// after a failure depends on what failed, so the queue learns of none.
func (c *Controller[T, R]) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	resource := c.New()
	if err := c.Client.Get(ctx, req.NamespacedName, resource); err != nil || resource.GetDeletionTimestamp() != nil {
		c.delays.forget(req)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	now := c.Clock.Now()
	why, at := c.Due(resource, now)
	if why == "" {
		c.delays.forget(req)
		if at.IsZero() {
			return ctrl.Result{}, nil
		}
		return ctrl.Result{RequeueAfter: at.Sub(now)}, nil
	}
	switch err := c.End(ctx, resource, why); {
	case err == nil:
		c.delays.forget(req)
		if c.Ended != nil {
			c.Ended(resource, why)
		}
		return ctrl.Result{}, nil
	case apply.Absent(err):
		c.delays.forget(req)
		return ctrl.Result{}, nil
	case apierrors.IsConflict(err):
		return ctrl.Result{RequeueAfter: failedDelays.First}, nil
	case errors.Is(ctx.Err(), context.Canceled): // we are being shut down
		return ctrl.Result{}, nil
	default:
		log.FromContext(ctx).Error(err, "not deleted, will be tried again")
		c.Metrics.Failed()
		again := c.delays.after(req, err)
		if c.Blocked != nil && c.delays.lasts(req) {
			c.Blocked(ctx, resource, why, err, now)
		}
		return ctrl.Result{RequeueAfter: again}, nil
	}
}
