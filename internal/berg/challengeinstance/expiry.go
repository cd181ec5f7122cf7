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

// terminationWorkers is the number of expired instances that are deleted concurrently. More
// would end few instances sooner, and would slow down the API server for starts.
func terminationWorkers(workers int) int { return max(1, workers/2) }

// expiries deletes live instances that have expired, or that have a termination reason.
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

// changesExpiry reports whether an update changes when an instance expires or terminates.
func (r *Reconciler) changesExpiry(before, after *bergv1.ChallengeInstance) bool {
	if before.Spec.TerminationReason != after.Spec.TerminationReason || status.Frozen(before) != status.Frozen(after) {
		return true
	}
	if before.Spec.Timeout == after.Spec.Timeout && before.Status.StartedAt.Equal(after.Status.StartedAt) &&
		bytes.Equal(status.RawSnapshot(before), status.RawSnapshot(after)) {
		return false // the usual case: no need to decode the snapshot, which has the default
	}
	return !status.ExpiresAt(before, r.Config.Challenge).Equal(status.ExpiresAt(after, r.Config.Challenge))
}

// reasonTimeout bounds how long the write of its reason may delay a termination. It exceeds
// the response time of a busy API server and the default timeout of a webhook.
const reasonTimeout = 15 * time.Second

// terminate requests the deletion of a live instance; finalize does the rest. It writes the
// reason first, but does not depend on that: the API server may reject it.
func (r *Reconciler) terminate(ctx context.Context, instance *bergv1.ChallengeInstance, reason bergv1.TerminationReason) error {
	exactly := metav1.Preconditions{UID: ptr.To(instance.UID)}
	if instance.Spec.TerminationReason != reason {
		switch err := r.writeReason(ctx, instance, reason); {
		case apierrors.IsConflict(err) || apply.Absent(err):
			return err
		case err != nil:
			// As with the lock of writeReason, a last-moment extension wins over the expiry.
			exactly.ResourceVersion = ptr.To(instance.ResourceVersion)
			r.terminations.setReason(instance, reason)
			log.FromContext(ctx).V(1).Info("spec.terminationReason could not be written; the instance terminates without it",
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

// writeReason writes why an instance terminates. Because of the optimistic lock, a last-moment
// extension wins over the expiry.
func (r *Reconciler) writeReason(ctx context.Context, instance *bergv1.ChallengeInstance, reason bergv1.TerminationReason) error {
	ctx, cancel := context.WithTimeout(ctx, reasonTimeout)
	defer cancel()
	after := instance.DeepCopy()
	after.Spec.TerminationReason = reason
	return r.Client.Patch(ctx, after, client.MergeFromWithOptions(instance, client.MergeFromWithOptimisticLock{}))
}

// reportBlocked reports that the API server rejects the deletion of an instance that must
// terminate. If the status cannot be written either, the event remains.
func (r *Reconciler) reportBlocked(ctx context.Context, instance *bergv1.ChallengeInstance, reason bergv1.TerminationReason, err error, now time.Time) {
	if status := apierrors.APIStatus(nil); !errors.As(err, &status) {
		return // the API server cannot be reached, so it would not accept a status either
	}
	before := instance.DeepCopy()
	c := status.Condition(bergv1.ConditionNamespaceDeleted, metav1.ConditionFalse, bergv1.ReasonDeletionBlocked,
		fmt.Sprintf("The instance must terminate (%s), but the API server rejects its deletion, which is retried: %s", reason, err))
	status.SetConditions(instance, now, c)
	if equality.Semantic.DeepEqual(before.Status, instance.Status) {
		return
	}
	if err := r.patchStatus(ctx, before, instance); apierrors.IsConflict(err) {
		return // the next attempt reports it
	}
	reconcile.Warning(r.Events, instance, c.Reason, actionTerminate, note(instance, c))
}
