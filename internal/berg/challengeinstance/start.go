package challengeinstance

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// start persists what makes this instance this instance, before the first child
// that carries it; later, it adopts the Challenge as it is now when a new
// rollout is asked for.
func (r *Reconciler) start(ctx context.Context, instance *bergv1.ChallengeInstance, observed Observed, now time.Time) error {
	rollout := instance.Annotations[bergv1.AnnotationRollout]
	adopt := rollout != instance.Status.ObservedRollout && observed.Challenge != nil && judgeChallenge(observed.Challenge, "") == nil
	if instance.Status.InstanceID != "" && !adopt {
		return nil
	}
	before := instance.DeepCopy()
	s := &instance.Status
	if s.InstanceID == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return fmt.Errorf("make an instance ID: %w", err)
		}
		s.InstanceID = id.String()
		s.StartedAt = &metav1.Time{Time: now.Truncate(time.Second)}
		s.Namespace = NamespaceName(instance.Spec.OwnerID)
		s.Phase = bergv1.PhasePending
		s.ObservedGeneration = instance.Generation
	}
	raw, err := snapshotOf(observed.Challenge).raw()
	if err != nil {
		return err
	}
	s.ChallengeSnapshot = raw
	s.ChallengeGeneration = observed.Challenge.Generation
	s.ObservedRollout = rollout
	setExpiry(instance, r.Config.Challenge)
	if err := r.patchStatus(ctx, before, instance); err != nil {
		return err
	}
	r.reportStarted(before, instance)
	return nil
}
