package status

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/berg/rules"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// checks must succeed for an instance itself before it is built. They are in the order of their conditions. The first
// problem counts.
var checks = []func(Candidate, config.Challenge) *outcome.Problem{
	contentIsReadable,
	namespaceIsTaken,
	referenceIsAllowed,
	challengeExists,
	challengeHasContainers,
	challengeIsValid,
	nodesAreSuitable,
	flagIsThere,
	flagFits,
}

// Check returns why an instance cannot be built, nil if it can.
func Check(o Observed, cfg config.Challenge) *outcome.Problem {
	if p := CheckAlone(o.Candidate, cfg); p != nil {
		return p
	}
	return NamespaceIsOurs(o.Candidate, o.Namespace)
}

// CheckAlone ignores other instances and existing objects.
func CheckAlone(c Candidate, cfg config.Challenge) *outcome.Problem {
	if p := checkSpec(c, cfg); p != nil {
		return p
	}
	return challengeIsNotFrozen(c)
}

// checkSpec also ignores a freeze, which does not concern live instances.
func checkSpec(c Candidate, cfg config.Challenge) *outcome.Problem {
	for _, check := range checks {
		if p := check(c, cfg); p != nil {
			return p
		}
	}
	return nil
}

// checkAdoption returns why a live instance cannot adopt the current version of its Challenge,
// nil if it can. A former snapshot does not count, also where it cannot be read: an adoption replaces it.
func checkAdoption(c Candidate, cfg config.Challenge) *outcome.Problem {
	c.Pinned, c.Unreadable = nil, nil
	return checkSpec(c, cfg)
}

// contentIsReadable comes first, because all other checks depend on the content that the instance was started with. Its
// pods continue to run.
func contentIsReadable(c Candidate, _ config.Challenge) *outcome.Problem {
	if c.Unreadable == nil {
		return nil
	}
	return &outcome.Problem{
		Condition: bergv1.ConditionChallengeFound, Reason: bergv1.ReasonRevisionMissing, Class: outcome.Retry, Err: c.Unreadable,
		Message: fmt.Sprintf("The instance is not repaired, because the content of its start cannot be read: %s. Restore the Secret from a backup, "+
			"or set the annotation %s to a new value to adopt the Challenge as it is now, or delete the instance", c.Unreadable, bergv1.AnnotationRollout),
	}
}

// referenceIsAllowed comes before all checks of the Challenge: an instance that may not use it
// must not learn whether it exists.
func referenceIsAllowed(c Candidate, cfg config.Challenge) *outcome.Problem {
	if c.Pinned != nil || c.Prepared {
		return nil
	}
	from, target := c.Instance.Namespace, c.Key.Namespace
	if cfg.MayUse(from, target) {
		return nil
	}
	allowed := from
	if cfg.RefPolicy == config.RefConfiguredNamespace {
		allowed = cfg.Namespace
	}
	return &outcome.Problem{
		Condition: bergv1.ConditionChallengeFound, Reason: bergv1.ReasonReferenceNotAllowed, Class: outcome.Blocked,
		Message: fmt.Sprintf("spec.challengeRef.namespace: %s is not allowed by CHALLENGE_REF_POLICY=%s: an instance of namespace %s may use only Challenges of the namespace %s",
			target, cfg.RefPolicy, from, allowed),
	}
}

// namespaceIsTaken comes before all checks of the Challenge: an instance of another namespace must neither take an owner's
// ID nor learn anything.
func namespaceIsTaken(c Candidate, cfg config.Challenge) *outcome.Problem {
	if c.Pinned != nil || c.Prepared || len(cfg.InstanceNamespaces) == 0 || slices.Contains(cfg.InstanceNamespaces, c.Instance.Namespace) {
		return nil
	}
	return &outcome.Problem{
		Condition: bergv1.ConditionChallengeFound, Reason: bergv1.ReasonNamespaceNotAllowed, Class: outcome.Blocked,
		Message: fmt.Sprintf("metadata.namespace: the operator's CHALLENGE_INSTANCE_NAMESPACES does not name %s: create the instance in a namespace that it names, or ask the administrator",
			c.Instance.Namespace),
	}
}

func challengeExists(c Candidate, _ config.Challenge) *outcome.Problem {
	// A started instance no longer depends on its Challenge: see Withdrawn.
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
	errs := manifests.Normalize(c.Challenge).Validate(rules.AllowedBy(cfg))
	if len(errs) == 0 {
		return nil
	}
	return &outcome.Problem{
		Condition: bergv1.ConditionChallengeFound, Reason: bergv1.ReasonInvalidChallenge, Class: outcome.Blocked,
		Message: fmt.Sprintf("Challenge %s cannot be run: %s", c.Key, manifests.Summary(errs, c.Instance.Spec.Flag)),
	}
}

// nodesAreSuitable: pods of a Challenge that no node can run would wait until the start deadline.
func nodesAreSuitable(c Candidate, _ config.Challenge) *outcome.Problem {
	if c.Pinned != nil {
		return nil
	}
	p := c.Nodes.Check(bergv1.ConditionChallengeFound, c.Challenge.Spec.Containers)
	if p != nil {
		p.Message = fmt.Sprintf("Challenge %s cannot be run: %s", c.Key, p.Message)
	}
	return p
}

func flagIsThere(c Candidate, _ config.Challenge) *outcome.Problem {
	if c.Instance.Spec.Flag != "" || c.Prepared {
		return nil
	}
	if !manifests.NeedsFlag(c.containers()) {
		return nil
	}
	return &outcome.Problem{
		Condition: bergv1.ConditionFlagValidation, Reason: bergv1.ReasonFlagMissing, Class: outcome.Blocked,
		Message: "The Challenge requires a dynamic flag and spec.flag is empty: set spec.flag",
	}
}

// flagFits: a file can contain any flag, but an environment variable cannot contain NUL. The
// kubelet would never create the container, and no message would say why.
func flagFits(c Candidate, _ config.Challenge) *outcome.Problem {
	if !strings.ContainsRune(c.Instance.Spec.Flag, 0) {
		return nil
	}
	for _, container := range c.containers() {
		if f := container.DynamicFlag; f != nil && f.Env != nil {
			return &outcome.Problem{
				Condition: bergv1.ConditionFlagValidation, Reason: bergv1.ReasonInvalidFlag, Class: outcome.Blocked,
				Message: fmt.Sprintf("spec.flag contains a NUL character, which the environment variable %s of container %s (dynamicFlag.env) cannot hold. "+
					"Delete this instance and create one with another flag", f.Env.Name, container.Hostname),
			}
		}
	}
	return nil
}

// NamespaceIsOurs returns why an instance cannot be built in the namespace of its owner. It returns nil if the namespace
// does not exist, or belongs to the instance. A namespace of another owner is never written, not even to add a label.
func NamespaceIsOurs(c Candidate, ns *corev1.Namespace) *outcome.Problem {
	owner := manifests.NamespaceOwner(c.Instance)
	if ns == nil || owner.Owns(ns) && ns.DeletionTimestamp == nil {
		return nil
	}
	if owner.Owns(ns) {
		return &outcome.Problem{
			Condition: bergv1.ConditionNamespaceCreated, Reason: bergv1.ReasonWaiting, Class: outcome.Waiting,
			Message: fmt.Sprintf("Namespace %s is being deleted and will be created again", ns.Name),
		}
	}
	return &outcome.Problem{
		Condition: bergv1.ConditionNamespaceCreated, Reason: bergv1.ReasonNamespaceConflict, Class: outcome.Blocked,
		Message: conflictMessage(c.Instance, ns),
	}
}

// conflictMessage describes the namespace that blocks an instance. Instances are searched by
// the owner in the name of the namespace: if none of them has the UID on the namespace, its
// instance no longer exists.
func conflictMessage(instance *bergv1.ChallengeInstance, ns *corev1.Namespace) string {
	switch uid, provable := manifests.ReadInstanceUID(ns); {
	case uid == instance.UID:
		return fmt.Sprintf("Namespace %s carries the UID of this instance, but the operator did not create it for this instance: another user did, or the instance's status was lost. Nothing is written in it. Delete it", ns.Name)
	case !provable:
		return fmt.Sprintf("Namespace %s exists and does not belong to this instance. It is left unchanged. Delete it", ns.Name)
	case ns.DeletionTimestamp != nil:
		return fmt.Sprintf("Namespace %s was left behind by instance %s, which no longer exists, and is being deleted. This instance starts afterwards",
			ns.Name, ns.Annotations[bergv1.AnnotationInstance])
	default:
		return fmt.Sprintf("Namespace %s was left behind by instance %s, which no longer exists: its finalizer was removed by hand. Delete the namespace, or set ORPHAN_GRACE_PERIOD so that the operator deletes it",
			ns.Name, ns.Annotations[bergv1.AnnotationInstance])
	}
}
