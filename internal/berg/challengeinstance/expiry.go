package challengeinstance

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/apply"
)

// expirer ends live instances: those whose time is over, and those that are asked
// to end. It has a queue of its own, so that an expiry never waits behind
// instances that are being built: not in a busy hour, and not after a restart,
// when all instances are looked at.
type expirer struct {
	client client.Client
	clock  clock.PassiveClock
	config config.Config
}

// The pauses between attempts to end an instance, which is late already.
const (
	firstPause   = 100 * time.Millisecond
	longestPause = time.Second
)

func (e *expirer) setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("challengeinstance-expiry").
		For(&bergv1.ChallengeInstance{}, builder.WithPredicates(predicate.Funcs{
			DeleteFunc: func(event.DeleteEvent) bool { return false },
			UpdateFunc: e.movesTheEnd,
		})).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: endingWorkers(e.config.Process),
			ReconciliationTimeout:   longestPass,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstPause, longestPause),
		}).
		Complete(drained{e})
}

// movesTheEnd passes the updates that change when an instance ends.
func (e *expirer) movesTheEnd(u event.UpdateEvent) bool {
	before, after := u.ObjectOld.(*bergv1.ChallengeInstance), u.ObjectNew.(*bergv1.ChallengeInstance)
	return before.Spec.TerminationReason != after.Spec.TerminationReason ||
		!expiry(before, e.config.Challenge).Equal(expiry(after, e.config.Challenge))
}

// Reconcile ends an instance that is due, and comes back when it will be.
func (e *expirer) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	instance := &bergv1.ChallengeInstance{}
	if err := e.client.Get(ctx, req.NamespacedName, instance); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if instance.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	now := e.clock.Now()
	if reason := dueTermination(instance, e.config.Challenge, now); reason != "" {
		err := terminate(ctx, e.client, instance, reason)
		if apierrors.IsConflict(err) {
			return ctrl.Result{RequeueAfter: firstPause}, nil
		}
		if err == nil && reason == bergv1.TerminationTimeout {
			expiryDelays.Observe(e.clock.Since(expiry(instance, e.config.Challenge).Time).Seconds())
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if at := expiry(instance, e.config.Challenge); at != nil {
		return ctrl.Result{RequeueAfter: at.Sub(now)}, nil
	}
	return ctrl.Result{}, nil
}

// terminate asks for the deletion of a live instance; finalize does the rest.
func terminate(ctx context.Context, c client.Client, instance *bergv1.ChallengeInstance, reason bergv1.TerminationReason) error {
	if instance.Spec.TerminationReason != reason {
		before := instance.DeepCopy()
		instance.Spec.TerminationReason = reason
		// With the lock an extension at the last moment wins over the expiry.
		err := c.Patch(ctx, instance, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return err
		}
		if err != nil {
			return fmt.Errorf("set spec.terminationReason: %w", redacted(err, instance.Spec.Flag))
		}
	}
	err := apply.Delete(ctx, c, instance)
	if apierrors.IsConflict(err) {
		return err
	}
	if err != nil {
		return fmt.Errorf("delete the instance: %w", redacted(err, instance.Spec.Flag))
	}
	return nil
}

// redacted is an error's text without the flag.
func redacted(err error, flag string) error { return errors.New(redact(err.Error(), flag)) }

// expiry is when an instance ends; nil before its start.
func expiry(instance *bergv1.ChallengeInstance, cfg config.Challenge) *metav1.Time {
	if instance.Status.StartedAt == nil {
		return nil
	}
	return &metav1.Time{Time: instance.Status.StartedAt.Add(lifetime(instance, cfg))}
}

// lifetime is how long an instance lives: what it says, else the default, and
// never more than the cap.
func lifetime(instance *bergv1.ChallengeInstance, cfg config.Challenge) time.Duration {
	d := cfg.Timeout
	// The schema admits only what parses; the default stands in for the rest.
	if parsed, err := time.ParseDuration(instance.Spec.Timeout); err == nil && parsed > 0 {
		d = parsed
	}
	if cfg.MaxLifetime > 0 {
		d = min(d, cfg.MaxLifetime)
	}
	return d
}

// dueTermination returns why a live instance must end now, "" if it need not.
func dueTermination(instance *bergv1.ChallengeInstance, cfg config.Challenge, now time.Time) bergv1.TerminationReason {
	if instance.Spec.TerminationReason != "" {
		return instance.Spec.TerminationReason
	}
	if at := expiry(instance, cfg); at != nil && !now.Before(at.Time) {
		return bergv1.TerminationTimeout
	}
	return ""
}
