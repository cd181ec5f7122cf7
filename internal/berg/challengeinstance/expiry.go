package challengeinstance

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/settings"
)

// expirer ends live instances: those whose time is over, and those that are asked
// to end. It has a queue of its own, so that an expiry never waits behind
// instances that are being built: not in a busy hour, and not after a restart,
// when all instances are looked at.
type expirer struct {
	*Reconciler
	// jumped has an event after each jump of the time of day.
	jumped <-chan event.GenericEvent
	pauses endingPauses
}

func (e *expirer) setup(mgr ctrl.Manager) error {
	e.pauses = newEndingPauses()
	return ctrl.NewControllerManagedBy(mgr).
		Named("challengeinstance-expiry").
		For(&bergv1.ChallengeInstance{}, builder.WithPredicates(predicate.Funcs{
			DeleteFunc: func(event.DeleteEvent) bool { return false },
			UpdateFunc: e.movesTheEnd,
		})).
		WatchesRawSource(source.Channel(e.jumped, handler.EnqueueRequestsFromMapFunc(e.every(isLive)))).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: endingWorkers(e.Workers),
			ReconciliationTimeout:   longestPass,
		}).
		Complete(drained{e})
}

// movesTheEnd passes the updates that change when an instance ends.
func (e *expirer) movesTheEnd(u event.UpdateEvent) bool {
	before, after := u.ObjectOld.(*bergv1.ChallengeInstance), u.ObjectNew.(*bergv1.ChallengeInstance)
	if before.Spec.TerminationReason != after.Spec.TerminationReason {
		return true
	}
	if before.Spec.Timeout == after.Spec.Timeout && before.Status.StartedAt.Equal(after.Status.StartedAt) &&
		bytes.Equal(rawSnapshot(before), rawSnapshot(after)) {
		return false // as nearly always; the snapshot, which holds the default, need not be read
	}
	return !expiry(before, e.Config.Challenge).Equal(expiry(after, e.Config.Challenge))
}

// Reconcile ends an instance that is due, and comes back when it will be. It returns
// no errors: the pause depends on who said no.
func (e *expirer) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	instance := &bergv1.ChallengeInstance{}
	if err := e.Client.Get(ctx, req.NamespacedName, instance); err != nil || instance.DeletionTimestamp != nil {
		e.pauses.forget(req)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	now := e.Clock.Now()
	reason := dueTermination(instance, e.Config.Challenge, now)
	if reason == "" {
		e.pauses.forget(req)
		if at := expiry(instance, e.Config.Challenge); at != nil {
			return ctrl.Result{RequeueAfter: at.Sub(now)}, nil
		}
		return ctrl.Result{}, nil
	}
	switch err := e.terminate(ctx, instance, reason); {
	case err == nil:
		e.pauses.forget(req)
		if reason == bergv1.TerminationTimeout {
			expiryDelays.Observe(e.Clock.Since(expiry(instance, e.Config.Challenge).Time).Seconds())
		}
		return ctrl.Result{}, nil
	case apply.Absent(err):
		e.pauses.forget(req)
		return ctrl.Result{}, nil
	case apierrors.IsConflict(err):
		return ctrl.Result{RequeueAfter: firstPause}, nil
	case errors.Is(ctx.Err(), context.Canceled): // we are being shut down
		return ctrl.Result{}, nil
	default:
		err = withoutFlag(err, instance)
		log.FromContext(ctx).Error(err, "not ended, will be tried again")
		reconcileErrors.Inc()
		again := e.pauses.after(req, err)
		if e.pauses.lasts(req) {
			e.tellBlocked(ctx, instance, reason, err, now)
		}
		return ctrl.Result{RequeueAfter: again}, nil
	}
}

// The pauses between attempts to end an instance, which is late already. An API
// server that cannot be reached is tried often: when it is back, players get their
// resources back. One that says no to a deletion, as in a freeze, will do so for a
// while, and to all that are over.
const (
	firstPause          = 100 * time.Millisecond
	longestPause        = time.Second
	longestRefusedPause = time.Minute

	// What all that are over try together, for a second.
	mostTries        = 100
	mostRefusedTries = 10
)

// endingPauses are how long to wait before the next attempt to end an instance.
type endingPauses struct {
	failed, refused workqueue.TypedRateLimiter[reconcile.Request]
}

func newEndingPauses() endingPauses {
	pauses := func(longest time.Duration, together int) workqueue.TypedRateLimiter[reconcile.Request] {
		return workqueue.NewTypedMaxOfRateLimiter(
			workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstPause, longest),
			&workqueue.TypedBucketRateLimiter[reconcile.Request]{Limiter: rate.NewLimiter(rate.Limit(together), together)})
	}
	return endingPauses{failed: pauses(longestPause, mostTries), refused: pauses(longestRefusedPause, mostRefusedTries)}
}

// after returns the pause after an attempt that failed with an error.
func (p endingPauses) after(req reconcile.Request, err error) time.Duration {
	if outcome.CauseOf(err) == outcome.Rejected {
		return p.refused.When(req)
	}
	return p.failed.When(req)
}

// lasts reports whether a failure is more than a hiccup: the API server said
// no, or it is not the first failure.
func (p endingPauses) lasts(req reconcile.Request) bool {
	return p.refused.NumRequeues(req) > 0 || p.failed.NumRequeues(req) > 1
}

func (p endingPauses) forget(req reconcile.Request) {
	p.failed.Forget(req)
	p.refused.Forget(req)
}

// reasonPatience is how long an end may be held up by the write of its reason: longer
// than a busy API server takes, or a webhook that does not answer by default.
const reasonPatience = 15 * time.Second

// terminate asks for the deletion of a live instance; finalize does the rest. The
// reason is written before it where the API server takes it: the end does not hang
// on that.
func (r *Reconciler) terminate(ctx context.Context, instance *bergv1.ChallengeInstance, reason bergv1.TerminationReason) error {
	exactly := metav1.Preconditions{UID: ptr.To(instance.UID)}
	if instance.Spec.TerminationReason != reason {
		switch err := r.writeReason(ctx, instance, reason); {
		case apierrors.IsConflict(err) || apply.Absent(err):
			return err
		case err != nil:
			// An extension at the last moment wins over the expiry all the same.
			exactly.ResourceVersion = ptr.To(instance.ResourceVersion)
			r.endings.asked(instance, reason)
			log.FromContext(ctx).V(1).Info("spec.terminationReason is not written; the instance ends without it",
				"reason", redact(err.Error(), instance.Spec.Flag))
		}
	}
	err := apply.IgnoreAbsent(r.Client.Delete(ctx, instance,
		client.Preconditions(exactly), client.PropagationPolicy(metav1.DeletePropagationBackground)))
	if err != nil {
		r.endings.asked(instance, "")
		return fmt.Errorf("delete the instance: %w", withoutFlag(err, instance))
	}
	return nil
}

// writeReason writes why an instance ends. With the lock an extension at the last
// moment wins over the expiry.
func (r *Reconciler) writeReason(ctx context.Context, instance *bergv1.ChallengeInstance, reason bergv1.TerminationReason) error {
	ctx, cancel := context.WithTimeout(ctx, reasonPatience)
	defer cancel()
	ending := instance.DeepCopy()
	ending.Spec.TerminationReason = reason
	return r.Client.Patch(ctx, ending, client.MergeFromWithOptions(instance, client.MergeFromWithOptimisticLock{}))
}

// tellBlocked says of an instance that must end that the API server refuses its
// deletion. Where the status cannot be written either, the event remains.
func (r *Reconciler) tellBlocked(ctx context.Context, instance *bergv1.ChallengeInstance, reason bergv1.TerminationReason, err error, now time.Time) {
	if status := apierrors.APIStatus(nil); !errors.As(err, &status) {
		return // nobody said no, and nobody would listen
	}
	before := instance.DeepCopy()
	c := condition(bergv1.ConditionNamespaceDeleted, metav1.ConditionFalse, bergv1.ReasonDeletionBlocked,
		fmt.Sprintf("The instance must end (%s), which is tried again and again: %s", reason, err))
	setConditions(instance, now, c)
	if equality.Semantic.DeepEqual(before.Status, instance.Status) {
		return
	}
	if err := r.patchStatus(ctx, before, instance); apierrors.IsConflict(err) {
		return // the next attempt tells
	}
	r.Events.Eventf(instance, nil, corev1.EventTypeWarning, c.Reason, actionTerminate, "%s", note(instance, c))
}

// expiry is when an instance ends; nil before its start.
func expiry(instance *bergv1.ChallengeInstance, cfg config.Challenge) *metav1.Time {
	if instance.Status.StartedAt == nil {
		return nil
	}
	return &metav1.Time{Time: instance.Status.StartedAt.Add(lifetime(instance, cfg))}
}

// lifetime is how long an instance lives: what it says, else the default that it was
// started with, and never more than the cap. The cap is the administrator's, and holds
// for what lives already.
func lifetime(instance *bergv1.ChallengeInstance, cfg config.Challenge) time.Duration {
	d, ok := ownTimeout(instance)
	if !ok {
		d = cmp.Or(pinnedTimeout(instance), cfg.Timeout)
	}
	if cfg.MaxLifetime > 0 {
		d = min(d, cfg.MaxLifetime)
	}
	return d
}

// numbersWithUnits is the pattern of spec.timeout.
var numbersWithUnits = regexp.MustCompile(`^([0-9]+h)?([0-9]+m)?([0-9]+s)?$`)

// ownTimeout returns how long an instance says that it lives, ok if it does. The schema
// admits nothing but a duration; but resources may have been stored under another one.
func ownTimeout(instance *bergv1.ChallengeInstance) (d time.Duration, ok bool) {
	timeout := instance.Spec.Timeout
	d, err := time.ParseDuration(timeout)
	switch {
	case err == nil:
		return d, d > 0
	case timeout != "" && numbersWithUnits.MatchString(timeout):
		return settings.LongestDuration, true // nothing else is wrong with it than its size
	default:
		return 0, false
	}
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
