package challengeinstance

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/kit/apply"
)

// terminate asks for the deletion of a live instance; finalize does the rest.
func (r *Reconciler) terminate(ctx context.Context, instance *bergv1.ChallengeInstance, reason bergv1.TerminationReason) error {
	if instance.Spec.TerminationReason != reason {
		before := instance.DeepCopy()
		instance.Spec.TerminationReason = reason
		// With the lock an extension at the last moment wins over the expiry.
		err := r.Client.Patch(ctx, instance, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		if err != nil {
			return err
		}
	}
	if err := apply.Delete(ctx, r.Client, instance); err != nil {
		return err
	}
	if reason == bergv1.TerminationTimeout {
		timeouts.Inc()
	}
	return nil
}

// finalize ends an instance that is being deleted, from whatever state it is in:
// it needs neither the Challenge nor any optional API, since all that belongs to
// an instance lives in its namespace. It is done when the namespace is gone.
func (r *Reconciler) finalize(ctx context.Context, instance *bergv1.ChallengeInstance, now time.Time) error {
	if !controllerutil.ContainsFinalizer(instance, bergv1.Finalizer) {
		return nil
	}
	before := instance.DeepCopy()
	ns, err := r.ownNamespace(ctx, instance)
	if err != nil {
		return err
	}
	if ns != nil && ns.DeletionTimestamp == nil {
		if err := apply.Delete(ctx, r.Client, ns); err != nil {
			deriveTerminating(instance, ns, redact(err.Error(), instance.Spec.Flag), now)
			return joinPatch(err, r.patchStatus(ctx, before, instance))
		}
	}
	if ns != nil {
		deriveTerminating(instance, ns, "", now)
		r.reportEnding(before, instance)
		return r.patchStatus(ctx, before, instance) // the namespace's events wake us
	}

	deriveTerminated(instance, now)
	r.reportEnding(before, instance)
	if err := r.patchStatus(ctx, before, instance); err != nil {
		return err
	}
	r.reportEnded(before, instance)
	unfinalized := instance.DeepCopy()
	controllerutil.RemoveFinalizer(unfinalized, bergv1.Finalizer)
	// Nothing can be read back of an object that is gone, so there is no write to
	// wait for.
	return r.Client.Patch(ctx, unfinalized, client.MergeFromWithOptions(instance, client.MergeFromWithOptimisticLock{}), client.DisableReadYourWritesConsistency)
}

// ownNamespace returns the instance's namespace, nil if it is gone or was never
// this instance's. The cache of a replica that has just taken over may not show
// yet what its predecessor created, so absence is confirmed by the API server.
func (r *Reconciler) ownNamespace(ctx context.Context, instance *bergv1.ChallengeInstance) (*corev1.Namespace, error) {
	ns, err := r.observeNamespace(ctx, instance)
	if err != nil {
		return nil, err
	}
	if ns == nil {
		ns = &corev1.Namespace{}
		err := r.Live.Get(ctx, types.NamespacedName{Name: NamespaceName(instance.Spec.OwnerID)}, ns)
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
	}
	if !proofOf(instance).Holds(ns) {
		return nil, nil
	}
	return ns, nil
}

func deriveTerminating(instance *bergv1.ChallengeInstance, ns *corev1.Namespace, refused string, now time.Time) {
	instance.Status.Phase = bergv1.PhaseTerminating
	instance.Status.ObservedGeneration = instance.Generation
	c := metav1.Condition{
		Type: bergv1.ConditionNamespaceDeleted, Status: metav1.ConditionFalse, Reason: bergv1.ReasonTerminating,
		Message: fmt.Sprintf("Namespace %s is being deleted", ns.Name),
	}
	if refused != "" {
		c.Reason, c.Message = bergv1.ReasonDeletionBlocked, refused
	} else if why := heldBack(ns); why != "" {
		c.Reason, c.Message = bergv1.ReasonDeletionBlocked, fmt.Sprintf("Namespace %s cannot go: %s", ns.Name, why)
	}
	setEnding(instance, c, now)
}

func deriveTerminated(instance *bergv1.ChallengeInstance, now time.Time) {
	instance.Status.Phase = bergv1.PhaseTerminated
	instance.Status.ObservedGeneration = instance.Generation
	if instance.Status.TerminatedAt == nil {
		instance.Status.TerminatedAt = &metav1.Time{Time: now}
	}
	setEnding(instance, metav1.Condition{
		Type: bergv1.ConditionNamespaceDeleted, Status: metav1.ConditionTrue, Reason: bergv1.ReasonDeleted,
		Message: "The namespace is gone",
	}, now)
}

// setEnding writes NamespaceDeleted, and Healthy, which cannot stay true.
func setEnding(instance *bergv1.ChallengeInstance, deleted metav1.Condition, now time.Time) {
	healthy := metav1.Condition{
		Type: bergv1.ConditionHealthy, Status: metav1.ConditionFalse, Reason: bergv1.ReasonTerminating,
		Message: "The instance is being deleted",
	}
	for _, c := range []metav1.Condition{deleted, healthy} {
		c.ObservedGeneration = instance.Generation
		c.LastTransitionTime = metav1.Time{Time: now}
		meta.SetStatusCondition(&instance.Status.Conditions, c)
	}
}

// heldBack returns what keeps a namespace from going, as its controller says.
func heldBack(ns *corev1.Namespace) string {
	var why []string
	for _, c := range ns.Status.Conditions {
		if c.Status != corev1.ConditionTrue {
			continue
		}
		switch c.Type {
		case corev1.NamespaceDeletionDiscoveryFailure, corev1.NamespaceDeletionContentFailure,
			corev1.NamespaceDeletionGVParsingFailure, corev1.NamespaceFinalizersRemaining:
			why = append(why, c.Message)
		}
	}
	return strings.Join(why, "; ")
}
