package status

import (
	"cmp"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// BeingBuilt is the state between the start and the first object.
var BeingBuilt = &outcome.Problem{
	Condition: bergv1.ConditionNamespaceCreated, Reason: bergv1.ReasonCreating, Class: outcome.InProgress,
	Message: "The namespace is being created",
}

// TakingOver is the state of an instance that has taken over a prepared one, until its flag is written.
var TakingOver = &outcome.Problem{
	Condition: bergv1.ConditionNamespaceCreated, Reason: bergv1.ReasonCreating, Class: outcome.InProgress,
	Message: "The instance takes over a prepared one",
}

// Identity has the values that an instance is given when it starts, and keeps.
type Identity struct {
	ID uuid.UUID
	// Seed is random.
	Seed string
	// NamespaceTokenHash is the digest of the secret that the namespace will have.
	NamespaceTokenHash string
}

// Identify sets the identity and the start of an instance. The time in the ID becomes the time of the start. The caller has drawn
// the values. This function only writes them, so it is pure.
func Identify(instance *bergv1.ChallengeInstance, identity Identity, now time.Time) {
	s := &instance.Status
	setUUIDTime(&identity.ID, now)
	s.InstanceID, s.Seed = identity.ID.String(), identity.Seed
	s.NamespaceUID, s.NamespaceTokenHash = "", identity.NamespaceTokenHash
	s.StartedAt = &metav1.Time{Time: now.Truncate(time.Second)}
	s.Namespace = manifests.NamespaceName(instance.Spec.OwnerID)
}

// TakeOver gives an instance the identity of a prepared one, with its namespace and objects. The time starts now. The prepared
// instance stays as it is: only the given one changes.
func TakeOver(instance, prepared *bergv1.ChallengeInstance, now time.Time) {
	s, from := &instance.Status, prepared.Status.DeepCopy()
	s.InstanceID, s.Seed, s.PreparedFrom = from.InstanceID, from.Seed, prepared.UID
	s.Namespace, s.NamespaceUID, s.NamespaceTokenHash = manifests.NamespaceFor(prepared), from.NamespaceUID, ""
	s.Services, s.Images = from.Services, from.Images
	s.StartedAt = &metav1.Time{Time: now.Truncate(time.Second)}
}

// ChallengeKey names the Challenge of an instance. An instance that names no namespace uses the configured one.
func ChallengeKey(instance *bergv1.ChallengeInstance, cfg config.Challenge) types.NamespacedName {
	ref := instance.Spec.ChallengeRef
	return types.NamespacedName{Namespace: cmp.Or(ref.Namespace, cfg.Namespace), Name: ref.Name}
}

// Claimable reports whether an instance of a player can take over a prepared one: nothing but the flag and the owner is missing.
func Claimable(prepared *bergv1.ChallengeInstance) bool {
	s := &prepared.Status
	return prepared.DeletionTimestamp == nil && s.ClaimedBy == nil && s.ReadyAt != nil && s.NamespaceUID != "" && s.Phase == bergv1.PhaseRunning &&
		meta.IsStatusConditionTrue(s.Conditions, bergv1.ConditionHealthy) && meta.IsStatusConditionTrue(s.Conditions, bergv1.ConditionUpToDate)
}

// setUUIDTime sets the time in a UUID of version 7.
func setUUIDTime(id *uuid.UUID, now time.Time) {
	ms := now.UnixMilli()
	for i := range 6 {
		id[i] = byte(ms >> (8 * (5 - i)))
	}
}

// rolloutRequested reports whether a rollout was requested and not yet carried out.
func rolloutRequested(instance *bergv1.ChallengeInstance) bool {
	return instance.Annotations[bergv1.AnnotationRollout] != instance.Status.ObservedRollout
}

// changedBeforeRunning reports whether an instance that never ran would be built from something else now: its Challenge was
// edited, or the content of its start is lost, or its pods cannot start and the configuration was changed.
func changedBeforeRunning(o Observed, cfg config.Challenge, now time.Time) bool {
	switch {
	case o.Instance.Status.ReadyAt != nil || o.Challenge == nil:
		return false
	case o.Unreadable != nil:
		return true
	case o.Pinned == nil:
		return false
	case !o.Pinned.Matches(o.Challenge):
		return true
	default:
		return !defaultsCurrent(o.Pinned, cfg, o.Instance) && checkPods(o, now).broken != ""
	}
}

// RolloutDue reports whether the instance must adopt its Challenge now: a rollout was requested, or the instance never ran,
// so that nothing is lost. A Challenge that cannot be run is adopted once it is fixed.
func RolloutDue(o Observed, cfg config.Challenge, now time.Time) bool {
	return (rolloutRequested(o.Instance) || changedBeforeRunning(o, cfg, now)) && checkAdoption(o.Candidate, cfg) == nil
}
