package status

import (
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/berg/sealkey"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// BeingBuilt is the state between the start and the first object.
var BeingBuilt = &outcome.Problem{
	Condition: bergv1.ConditionNamespaceCreated, Reason: bergv1.ReasonCreating, Class: outcome.InProgress,
	Message: "The namespace is being created",
}

// Identity is what an instance is given when it starts, and keeps.
type Identity struct {
	ID uuid.UUID
	// Seed is random.
	Seed string
	// NamespaceTokenHash is the digest of a secret that the namespace will have.
	NamespaceTokenHash string
}

// Identify sets the identity and the start of an instance. The time in the ID becomes that of the
// start.
func Identify(instance *bergv1.ChallengeInstance, identity Identity, now time.Time) {
	s := &instance.Status
	setUUIDTime(&identity.ID, now)
	s.InstanceID, s.Seed = identity.ID.String(), identity.Seed
	s.NamespaceUID, s.NamespaceTokenHash = "", identity.NamespaceTokenHash
	s.StartedAt = &metav1.Time{Time: now.Truncate(time.Second)}
	s.Namespace = manifests.NamespaceName(instance.Spec.OwnerID)
}

// ResetNamespace prepares the creation of another namespace, after the API server has confirmed that there is none.
func ResetNamespace(instance *bergv1.ChallengeInstance, digest string) {
	instance.Status.NamespaceUID, instance.Status.NamespaceTokenHash = "", digest
}

// Pin stores the current Challenge and configuration: the instance is built from them. What is private is sealed.
func Pin(o *Observed, cfg config.Challenge, ring *sealkey.Ring) error {
	s := &o.Instance.Status
	pinned := manifests.NewSnapshot(o.Challenge)
	pinned.Defaults = manifests.NewDefaults(cfg)
	pinned.Defaults.Source = o.Instance.Labels[bergv1.LabelSource]
	pinned.Defaults.StaticFlag = o.Challenge.Spec.Flag != ""
	pinned.Images = refreshed(o, pinned)
	raw, err := pinned.Encode(ring, o.Instance.UID)
	if err != nil {
		return err
	}
	s.ChallengeSnapshot = raw
	s.Services = manifests.KeepWanted(s.Services, pinned.Containers)
	s.ChallengeGeneration = o.Challenge.Generation
	s.ObservedRollout = o.Instance.Annotations[bergv1.AnnotationRollout]
	o.Pinned = &pinned
	return nil
}

// SealAgain seals the snapshot of an instance of which a part is readable, or sealed with a former key. Nothing else of the
// instance changes.
func SealAgain(o *Observed, ring *sealkey.Ring) error {
	if o.Pinned == nil || o.Pinned.Seal != manifests.SealOutdated {
		return nil
	}
	raw, err := o.Pinned.Encode(ring, o.Instance.UID)
	if err != nil {
		return err
	}
	o.Instance.Status.ChallengeSnapshot, o.Pinned.Seal = raw, manifests.SealCurrent
	return nil
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

// inputsChanged reports whether an instance that never ran would be built from something else now: its Challenge was edited, or what
// it was started with is lost, or its pods cannot start and the configuration was changed.
func inputsChanged(o Observed, cfg config.Challenge, now time.Time) bool {
	switch {
	case o.Instance.Status.ReadyAt != nil || o.Pinned == nil || o.Challenge == nil:
		return false
	case o.Pinned.Seal == manifests.SealLost, !o.Pinned.Matches(o.Challenge):
		return true
	default:
		return !defaultsCurrent(o.Pinned, cfg, o.Instance) && checkPods(o, now).broken != ""
	}
}

// RolloutDue reports whether the instance must adopt its Challenge now: a rollout was requested, or the instance never ran,
// so that nothing is lost. A Challenge that cannot be run is adopted once it is fixed.
func RolloutDue(o Observed, cfg config.Challenge, now time.Time) bool {
	return (rolloutRequested(o.Instance) || inputsChanged(o, cfg, now)) && checkAdoption(o.Candidate, cfg) == nil
}
