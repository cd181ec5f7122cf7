package challengeinstance

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/expiry"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
	"github.com/bergctf/berg-operator/internal/kit/settings"
)

// expiries deletes live instances: those that have expired, and those that are
// asked to terminate.
func (r *Reconciler) expiries() *expiry.Controller[*bergv1.ChallengeInstance, bergv1.TerminationReason] {
	return &expiry.Controller[*bergv1.ChallengeInstance, bergv1.TerminationReason]{
		Name:    "challengeinstance-expiry",
		New:     func() *bergv1.ChallengeInstance { return &bergv1.ChallengeInstance{} },
		List:    listInstances,
		Client:  r.Client,
		Clock:   r.Clock,
		Workers: terminationWorkers(r.Workers),
		Metrics: reconcileMetrics,
		Due: func(i *bergv1.ChallengeInstance, now time.Time) (bergv1.TerminationReason, time.Time) {
			var at time.Time
			if over := expiresAt(i, r.Config.Challenge); over != nil {
				at = over.Time
			}
			return dueTermination(i, r.Config.Challenge, now), at
		},
		Moves: r.movesTheEnd,
		End: func(ctx context.Context, i *bergv1.ChallengeInstance, reason bergv1.TerminationReason) error {
			return withoutFlag(r.terminate(ctx, i, reason), i)
		},
		Ended: func(i *bergv1.ChallengeInstance, reason bergv1.TerminationReason) {
			if reason == bergv1.TerminationTimeout {
				expiryDelays.Observe(r.Clock.Since(expiresAt(i, r.Config.Challenge).Time).Seconds())
			}
		},
		Blocked: r.tellBlocked,
	}
}

// movesTheEnd reports whether an update changes when an instance expires or
// terminates.
func (r *Reconciler) movesTheEnd(before, after *bergv1.ChallengeInstance) bool {
	if before.Spec.TerminationReason != after.Spec.TerminationReason || frozen(before) != frozen(after) {
		return true
	}
	if before.Spec.Timeout == after.Spec.Timeout && before.Status.StartedAt.Equal(after.Status.StartedAt) &&
		bytes.Equal(rawSnapshot(before), rawSnapshot(after)) {
		return false // as nearly always; the snapshot, which holds the default, need not be read
	}
	return !expiresAt(before, r.Config.Challenge).Equal(expiresAt(after, r.Config.Challenge))
}

// reasonTimeout is how long a termination may be held up by the write of its reason:
// longer than a busy API server takes, or a webhook that does not answer by default.
const reasonTimeout = 15 * time.Second

// terminate asks for the deletion of a live instance; finalize does the rest. The
// reason is written before it where the API server takes it: the termination does
// not depend on that.
func (r *Reconciler) terminate(ctx context.Context, instance *bergv1.ChallengeInstance, reason bergv1.TerminationReason) error {
	exactly := metav1.Preconditions{UID: ptr.To(instance.UID)}
	if instance.Spec.TerminationReason != reason {
		switch err := r.writeReason(ctx, instance, reason); {
		case apierrors.IsConflict(err) || apply.Absent(err):
			return err
		case err != nil:
			// An extension at the last moment wins over the expiry all the same.
			exactly.ResourceVersion = ptr.To(instance.ResourceVersion)
			r.terminations.asked(instance, reason)
			log.FromContext(ctx).V(1).Info("spec.terminationReason is not written; the instance terminates without it",
				"reason", redact(err.Error(), instance.Spec.Flag))
		}
	}
	err := apply.IgnoreAbsent(r.Client.Delete(ctx, instance,
		client.Preconditions(exactly), client.PropagationPolicy(metav1.DeletePropagationBackground)))
	if err != nil {
		r.terminations.asked(instance, "")
		return fmt.Errorf("delete the instance: %w", withoutFlag(err, instance))
	}
	return nil
}

// writeReason writes why an instance terminates. With the lock an extension at
// the last moment wins over the expiry.
func (r *Reconciler) writeReason(ctx context.Context, instance *bergv1.ChallengeInstance, reason bergv1.TerminationReason) error {
	ctx, cancel := context.WithTimeout(ctx, reasonTimeout)
	defer cancel()
	after := instance.DeepCopy()
	after.Spec.TerminationReason = reason
	return r.Client.Patch(ctx, after, client.MergeFromWithOptions(instance, client.MergeFromWithOptimisticLock{}))
}

// tellBlocked says of an instance that must terminate that the API server
// refuses its deletion. Where the status cannot be written either, the event
// remains.
func (r *Reconciler) tellBlocked(ctx context.Context, instance *bergv1.ChallengeInstance, reason bergv1.TerminationReason, err error, now time.Time) {
	if status := apierrors.APIStatus(nil); !errors.As(err, &status) {
		return // no API server has refused it, and none would take the status
	}
	before := instance.DeepCopy()
	c := condition(bergv1.ConditionNamespaceDeleted, metav1.ConditionFalse, bergv1.ReasonDeletionBlocked,
		fmt.Sprintf("The instance must terminate (%s), which is tried again and again: %s", reason, err))
	setConditions(instance, now, c)
	if equality.Semantic.DeepEqual(before.Status, instance.Status) {
		return
	}
	if err := r.patchStatus(ctx, before, instance); apierrors.IsConflict(err) {
		return // the next attempt tells
	}
	reconcile.Warning(r.Events, instance, c.Reason, actionTerminate, note(instance, c))
}

// expiresAt is when an instance expires; nil before its start, and while it is frozen.
func expiresAt(instance *bergv1.ChallengeInstance, cfg config.Challenge) *metav1.Time {
	if instance.Status.StartedAt == nil || frozen(instance) {
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
	text := instance.Spec.Timeout
	d, err := time.ParseDuration(text)
	switch {
	case err == nil:
		return d, d > 0
	case text != "" && numbersWithUnits.MatchString(text):
		return settings.MaxDuration, true // its only problem is its size
	default:
		return 0, false
	}
}

// dueTermination returns why a live instance must terminate now, "" if it need
// not.
func dueTermination(instance *bergv1.ChallengeInstance, cfg config.Challenge, now time.Time) bergv1.TerminationReason {
	if instance.Spec.TerminationReason != "" {
		return instance.Spec.TerminationReason
	}
	if at := expiresAt(instance, cfg); at != nil && !now.Before(at.Time) {
		return bergv1.TerminationTimeout
	}
	return ""
}
