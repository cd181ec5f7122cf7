package status

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// checks are what must hold of an instance itself before it is built, in the
// order of the conditions that they show on. The first problem decides.
var checks = []func(Candidate, config.Challenge) *outcome.Problem{
	referenceIsAllowed,
	challengeExists,
	challengeHasContainers,
	challengeIsValid,
	flagIsThere,
	flagFits,
}

// Check returns why an instance cannot be built, nil when it can.
func Check(o Observed, cfg config.Challenge) *outcome.Problem {
	if p := CheckAlone(o.Candidate, cfg); p != nil {
		return p
	}
	if p := namespaceIsOurs(o); p != nil {
		return p
	}
	return ownerIsFree(o)
}

// CheckAlone leaves aside what stands in the cluster already.
func CheckAlone(c Candidate, cfg config.Challenge) *outcome.Problem {
	if p := checkSpec(c, cfg); p != nil {
		return p
	}
	return challengeIsNotFrozen(c)
}

// checkWishes leaves a freeze aside, too: an instance that lives is not held back by it.
func checkSpec(c Candidate, cfg config.Challenge) *outcome.Problem {
	for _, check := range checks {
		if p := check(c, cfg); p != nil {
			return p
		}
	}
	return nil
}

// checkAdoption returns why a live instance cannot be changed to its Challenge as
// it is now, nil when it can.
func checkAdoption(c Candidate, cfg config.Challenge) *outcome.Problem {
	c.Pinned = nil
	return checkSpec(c, cfg)
}

// referenceIsAllowed comes before anything is said of the Challenge: an instance
// that may not use it must not tell whether it exists either.
func referenceIsAllowed(c Candidate, cfg config.Challenge) *outcome.Problem {
	if c.Pinned != nil {
		return nil
	}
	var allowed string
	switch cfg.RefPolicy {
	case config.RefConfiguredNamespace:
		allowed = cfg.Namespace
	case config.RefSameNamespace:
		allowed = c.Instance.Namespace
	default:
		return nil
	}
	if c.Key.Namespace == allowed {
		return nil
	}
	return &outcome.Problem{
		Condition: bergv1.ConditionChallengeFound, Reason: bergv1.ReasonReferenceNotAllowed, Class: outcome.Blocked,
		Message: fmt.Sprintf("spec.challengeRef.namespace: %s is not allowed by CHALLENGE_REF_POLICY=%s: only Challenges of the namespace %s may be used",
			c.Key.Namespace, cfg.RefPolicy, allowed),
	}
}

func challengeExists(c Candidate, _ config.Challenge) *outcome.Problem {
	if c.Pinned != nil || c.Challenge != nil {
		return nil
	}
	return &outcome.Problem{
		Condition: bergv1.ConditionChallengeFound, Reason: bergv1.ReasonChallengeMissing, Class: outcome.Blocked,
		Message: fmt.Sprintf("Challenge %s not found: create it, or delete this instance", c.Key),
	}
}

func challengeHasContainers(c Candidate, _ config.Challenge) *outcome.Problem {
	if c.Pinned != nil || len(c.Challenge.Spec.Containers) > 0 {
		return nil
	}
	return &outcome.Problem{
		Condition: bergv1.ConditionChallengeFound, Reason: bergv1.ReasonNothingToRun, Class: outcome.Blocked,
		Message: fmt.Sprintf("Challenge %s has no containers: there is nothing to run", c.Key),
	}
}

func challengeIsValid(c Candidate, cfg config.Challenge) *outcome.Problem {
	if c.Pinned != nil {
		return nil
	}
	errs := manifests.Validate(manifests.SnapshotOf(c.Challenge), cfg.AllowedCapabilities)
	if len(errs) == 0 {
		return nil
	}
	return &outcome.Problem{
		Condition: bergv1.ConditionChallengeFound, Reason: bergv1.ReasonInvalidChallenge, Class: outcome.Blocked,
		Message: fmt.Sprintf("Challenge %s cannot be run: %s", c.Key, manifests.Summary(errs, c.Instance.Spec.Flag)),
	}
}

func flagIsThere(c Candidate, _ config.Challenge) *outcome.Problem {
	if c.Instance.Spec.Flag != "" {
		return nil
	}
	if !manifests.NeedsFlag(c.containers()) {
		return nil
	}
	return &outcome.Problem{
		Condition: bergv1.ConditionFlagValidation, Reason: bergv1.ReasonFlagMissing, Class: outcome.Blocked,
		Message: "The Challenge asks for a dynamic flag and spec.flag is empty: set spec.flag",
	}
}

// flagFits: every file can hold any flag, a variable cannot. Its container would never
// be created, and nothing would say why.
func flagFits(c Candidate, _ config.Challenge) *outcome.Problem {
	if !strings.ContainsRune(c.Instance.Spec.Flag, 0) {
		return nil
	}
	for _, container := range c.containers() {
		if f := container.DynamicFlag; f != nil && f.Env != nil {
			return &outcome.Problem{
				Condition: bergv1.ConditionFlagValidation, Reason: bergv1.ReasonInvalidFlag, Class: outcome.Blocked,
				Message: fmt.Sprintf("spec.flag contains a NUL character, and the environment variable %s of container %s (dynamicFlag.env) cannot: "+
					"delete this instance and create another one with another flag", f.Env.Name, container.Hostname),
			}
		}
	}
	return nil
}

// namespaceIsOurs: who holds the owner's namespace keeps it.
func namespaceIsOurs(o Observed) *outcome.Problem {
	ns, owner := o.Namespace, manifests.OwnerOf(o.Instance)
	if ns == nil || owner.Owns(ns) && ns.DeletionTimestamp == nil {
		return nil
	}
	if owner.Owns(ns) {
		return &outcome.Problem{
			Condition: bergv1.ConditionNamespaceCreated, Reason: bergv1.ReasonWaiting, Class: outcome.Waiting,
			Message: fmt.Sprintf("Namespace %s is being deleted and will be created again", ns.Name),
		}
	}
	if o.Holder != nil {
		return ownerBusy(o)
	}
	return &outcome.Problem{
		Condition: bergv1.ConditionNamespaceCreated, Reason: bergv1.ReasonNamespaceConflict, Class: outcome.Blocked,
		Message: conflictMessage(ns),
	}
}

// conflictMessage says what the namespace is that blocks an instance. Instances are
// looked for by the owner after whom it is named: one that was made for an instance, and
// for none of these, was left behind.
func conflictMessage(ns *corev1.Namespace) string {
	switch _, provable := manifests.InstanceUIDOf(ns); {
	case !provable:
		return fmt.Sprintf("Namespace %s exists and does not belong to this instance; it was left untouched: delete or rename it", ns.Name)
	case ns.DeletionTimestamp != nil:
		return fmt.Sprintf("Namespace %s was left behind by instance %s, which does not exist any more, and is being deleted: this one starts when it is gone",
			ns.Name, ns.Annotations[bergv1.AnnotationInstance])
	default:
		return fmt.Sprintf("Namespace %s was left behind by instance %s, which does not exist any more: its finalizer was removed by hand; delete the namespace, or let the operator do it by ORPHAN_GRACE_PERIOD",
			ns.Name, ns.Annotations[bergv1.AnnotationInstance])
	}
}

// ownerIsFree: while nobody holds the namespace, the first of the owner's
// instances that can be built has precedence.
func ownerIsFree(o Observed) *outcome.Problem {
	if o.Namespace != nil || o.Ahead == nil {
		return nil // it is ours, or nobody's
	}
	return ownerBusy(o)
}
