// Package expiry deletes custom resources when they expire: within one second, also when a
// thousand expire together, while others are being created, right after a restart and after
// the clock was set.
//
// A Controller has its own queue and workers, so that an expiry never waits for the creation
// of other resources. It reads a resource, requeues it for the time when it expires, and
// requests its deletion; other controllers delete the objects that the resource owns. It writes nothing
// else, and a resource that has not expired costs no request.
//
// Its functions belong to a Kind; Due decides. A Kind that lives for a duration from a start
// time that is written once, and that may be exempted, has
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
// where the duration is part of the resource itself. A duration from another object, such as a
// definition, must be copied into the status at the start: a change of another object causes no
// reconciliation.
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

// Controller deletes the resources of one kind, for reasons of type R. All fields that are not
// optional must be set.
type Controller[T client.Object, R ~string] struct {
	// Name of the controller, unique in the process.
	Name string
	// New returns an empty resource, List an empty list of them.
	New  func() T
	List func() client.ObjectList
	// Client reads from the cache.
	Client client.Client
	Clock  clock.PassiveClock
	// Workers is how many resources are reconciled concurrently.
	Workers int
	// Metrics count the failures.
	Metrics *reconcile.Metrics

	// Due returns why a live resource must be deleted now, "" if it must not; and when it
	// expires: after now if it must not be deleted yet, the zero time if it never expires. It is
	// called often and must make no request.
	Due func(resource T, now time.Time) (cause R, due time.Time)
	// Moves reports whether an update may change the result of Due.
	Moves func(before, after T) bool
	// End requests the deletion of exactly this resource. After a conflict the resource is
	// reconciled again immediately; that it is gone is no error. Other errors are logged, so
	// they must not hold secrets.
	End func(ctx context.Context, resource T, cause R) error
	// Ended is called after the deletion of a resource was requested. Optional.
	Ended func(resource T, cause R)
	// Blocked is called after each failed attempt to delete a resource, except after a first
	// failure that may be brief. now is the time of the attempt. Optional.
	Blocked func(ctx context.Context, resource T, cause R, err error, now time.Time)

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

// Reconcile deletes a resource that is due, or requeues it for the time when it will be. The
// delay after a failure depends on its cause, so no error is returned to the queue.
func (c *Controller[T, R]) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	resource := c.New()
	if err := c.Client.Get(ctx, req.NamespacedName, resource); err != nil || resource.GetDeletionTimestamp() != nil {
		c.delays.forget(req)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	now := c.Clock.Now()
	// A cached resource may be older than an extension. End sends the version that was read, so the API server decides.
	cause, due := c.Due(resource, now)
	// The queue's timer follows the monotonic clock. If the wall clock is set, clockskew enqueues every live resource
	// again.
	if cause == "" {
		c.delays.forget(req)
		if due.IsZero() {
			return ctrl.Result{}, nil
		}
		return ctrl.Result{RequeueAfter: due.Sub(now)}, nil
	}
	switch err := c.End(ctx, resource, cause); {
	case err == nil:
		c.delays.forget(req)
		if c.Ended != nil {
			c.Ended(resource, cause)
		}
		return ctrl.Result{}, nil
	case apply.Absent(err):
		c.delays.forget(req)
		return ctrl.Result{}, nil
	case apierrors.IsConflict(err):
		// Another client has written the resource, which may have extended its life: read it again before deleting it.
		return ctrl.Result{RequeueAfter: failedDelays.First}, nil
	// The next leader finds the resource due in its initial list.
	case errors.Is(ctx.Err(), context.Canceled): // we are being shut down
		return ctrl.Result{}, nil
	default:
		log.FromContext(ctx).Error(err, "the resource was not deleted; it is tried again")
		c.Metrics.Failed()
		requeueAfter := c.delays.after(req, err)
		if c.Blocked != nil && c.delays.lasts(req) {
			c.Blocked(ctx, resource, cause, err, now)
		}
		return ctrl.Result{RequeueAfter: requeueAfter}, nil
	}
}
