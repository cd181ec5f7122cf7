package challengeinstance

import (
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
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// reasonTimeout bounds how long the write of its reason may delay a termination. It exceeds
// the response time of a busy API server and the default timeout of a webhook.
const reasonTimeout = 15 * time.Second

// terminate requests the deletion of a live instance; finalize does the rest. It writes the
// reason first, but does not depend on that: the API server may reject it.
func (r *Reconciler) terminate(ctx context.Context, instance *bergv1.ChallengeInstance, reason bergv1.TerminationReason) error {
	// After a successful write of the reason the version has changed, and an extension that follows it comes too late.
	exactly := metav1.Preconditions{UID: ptr.To(instance.UID)}
	if instance.Spec.TerminationReason != reason {
		switch err := r.writeReason(ctx, instance, reason); {
		case apierrors.IsConflict(err) || apply.Absent(err):
			return err
		case err != nil:
			// As with the lock of writeReason, a last-moment extension wins over the expiry: it changes the version.
			exactly.ResourceVersion = ptr.To(instance.ResourceVersion)
			// It is stored before the deletion: the events of the deletion may be handled by another worker before this one
			// continues.
			r.terminations.setReason(instance, reason)
			log.FromContext(ctx).V(1).Info("spec.terminationReason could not be written; the instance terminates without it",
				"reason", redact.Text(err.Error(), instance.Spec.Flag))
		}
	}
	err := apply.IgnoreAbsent(r.Client.Delete(ctx, instance,
		client.Preconditions(exactly), client.PropagationPolicy(metav1.DeletePropagationBackground)))
	if err != nil {
		// The deletion was not accepted, or its answer was lost. If it was accepted, the reason follows from the time of the
		// deletion: see apparentReason.
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
	if err := r.kind.PatchStatus(ctx, before, instance, now); apierrors.IsConflict(err) {
		return // the next attempt reports it
	}
	reconcile.Warning(r.Events, instance, c.Reason, actionTerminate, note(instance, c))
}
