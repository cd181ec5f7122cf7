package challengeinstance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
	"github.com/bergctf/berg-operator/internal/berg/redact"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/expiry"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
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
			if over := status.ExpiresAt(i, r.Config.Challenge); over != nil {
				at = over.Time
			}
			return status.DueTermination(i, r.Config.Challenge, now), at
		},
		Moves: r.changesExpiry,
		End: func(ctx context.Context, i *bergv1.ChallengeInstance, reason bergv1.TerminationReason) error {
			return redact.Error(r.terminate(ctx, i, reason), i.Spec.Flag)
		},
		Ended: func(i *bergv1.ChallengeInstance, reason bergv1.TerminationReason) {
			if reason == bergv1.TerminationTimeout {
				expiryDelays.Observe(r.Clock.Since(status.ExpiresAt(i, r.Config.Challenge).Time).Seconds())
			}
		},
		Blocked: r.reportBlocked,
	}
}

// movesTheEnd reports whether an update changes when an instance expires or
// terminates.
func (r *Reconciler) changesExpiry(before, after *bergv1.ChallengeInstance) bool {
	if before.Spec.TerminationReason != after.Spec.TerminationReason || status.Frozen(before) != status.Frozen(after) {
		return true
	}
	if before.Spec.Timeout == after.Spec.Timeout && before.Status.StartedAt.Equal(after.Status.StartedAt) &&
		bytes.Equal(status.RawSnapshot(before), status.RawSnapshot(after)) {
		return false // as nearly always; the snapshot, which holds the default, need not be read
	}
	return !status.ExpiresAt(before, r.Config.Challenge).Equal(status.ExpiresAt(after, r.Config.Challenge))
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
			r.terminations.setReason(instance, reason)
			log.FromContext(ctx).V(1).Info("spec.terminationReason is not written; the instance terminates without it",
				"reason", redact.Text(err.Error(), instance.Spec.Flag))
		}
	}
	err := apply.IgnoreAbsent(r.Client.Delete(ctx, instance,
		client.Preconditions(exactly), client.PropagationPolicy(metav1.DeletePropagationBackground)))
	if err != nil {
		r.terminations.setReason(instance, "")
		return fmt.Errorf("delete the instance: %w", redact.Error(err, instance.Spec.Flag))
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
func (r *Reconciler) reportBlocked(ctx context.Context, instance *bergv1.ChallengeInstance, reason bergv1.TerminationReason, err error, now time.Time) {
	if status := apierrors.APIStatus(nil); !errors.As(err, &status) {
		return // no API server has refused it, and none would take the status
	}
	before := instance.DeepCopy()
	c := status.Condition(bergv1.ConditionNamespaceDeleted, metav1.ConditionFalse, bergv1.ReasonDeletionBlocked,
		fmt.Sprintf("The instance must terminate (%s), which is tried again and again: %s", reason, err))
	status.SetConditions(instance, now, c)
	if equality.Semantic.DeepEqual(before.Status, instance.Status) {
		return
	}
	if err := r.patchStatus(ctx, before, instance); apierrors.IsConflict(err) {
		return // the next attempt tells
	}
	reconcile.Warning(r.Events, instance, c.Reason, actionTerminate, note(instance, c))
}
