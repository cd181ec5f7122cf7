package challengeinstance

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
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

// judge returns why an instance cannot be built, nil when it can.
func judge(o Observed, cfg config.Challenge) *outcome.Problem {
	if p := judgeAlone(o.Candidate, cfg); p != nil {
		return p
	}
	if p := namespaceIsOurs(o); p != nil {
		return p
	}
	return ownerIsFree(o, cfg)
}

// judgeAlone leaves aside what stands in the cluster already.
func judgeAlone(c Candidate, cfg config.Challenge) *outcome.Problem {
	for _, check := range checks {
		if p := check(c, cfg); p != nil {
			return p
		}
	}
	return nil
}

// judgeAdoption returns why a live instance cannot be changed to its Challenge as
// it is now, nil when it can.
func judgeAdoption(c Candidate, cfg config.Challenge) *outcome.Problem {
	c.Pinned = nil
	return judgeAlone(c, cfg)
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
	errs := validate(snapshotOf(c.Challenge), cfg.AllowedCapabilities)
	if len(errs) == 0 {
		return nil
	}
	return &outcome.Problem{
		Condition: bergv1.ConditionChallengeFound, Reason: bergv1.ReasonInvalidChallenge, Class: outcome.Blocked,
		Message: fmt.Sprintf("Challenge %s cannot be run: %s", c.Key, summary(errs)),
	}
}

func flagIsThere(c Candidate, _ config.Challenge) *outcome.Problem {
	if c.Instance.Spec.Flag != "" {
		return nil
	}
	wanted := c.Pinned
	if wanted == nil {
		s := snapshotOf(c.Challenge)
		wanted = &s
	}
	if !needsFlag(wanted.Containers) {
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
	wanted := c.Pinned
	if wanted == nil {
		s := snapshotOf(c.Challenge)
		wanted = &s
	}
	for _, container := range wanted.Containers {
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
	ns, proof := o.Namespace, proofOf(o.Instance)
	if ns == nil || proof.Holds(ns) && ns.DeletionTimestamp == nil {
		return nil
	}
	if proof.Holds(ns) {
		return &outcome.Problem{
			Condition: bergv1.ConditionNamespaceCreated, Reason: bergv1.ReasonWaiting, Class: outcome.Waiting,
			Message: fmt.Sprintf("Namespace %s is being deleted and will be created again", ns.Name),
		}
	}
	for _, s := range o.Siblings {
		if proofOf(s.Instance).Holds(ns) {
			return ownerBusy("Namespace %s belongs to instance %s of the same owner: this one starts when that one is gone",
				ns.Name, client.ObjectKeyFromObject(s.Instance))
		}
	}
	return &outcome.Problem{
		Condition: bergv1.ConditionNamespaceCreated, Reason: bergv1.ReasonNamespaceConflict, Class: outcome.Blocked,
		Message: fmt.Sprintf("Namespace %s exists and does not belong to this instance; it was left untouched: delete or rename it", ns.Name),
	}
}

// ownerIsFree: while nobody holds the namespace, the first of the owner's
// instances that can be built goes first.
func ownerIsFree(o Observed, cfg config.Challenge) *outcome.Problem {
	if o.Namespace != nil {
		return nil // and it is ours
	}
	for _, s := range o.Siblings {
		if contends(s, cfg) && goesFirst(s.Instance, o.Instance) {
			return ownerBusy("Instance %s of the same owner goes first: this one starts when that one is gone",
				client.ObjectKeyFromObject(s.Instance))
		}
	}
	return nil
}

func ownerBusy(format string, args ...any) *outcome.Problem {
	return &outcome.Problem{
		Condition: bergv1.ConditionNamespaceCreated, Reason: bergv1.ReasonOwnerBusy, Class: outcome.Waiting,
		Message: fmt.Sprintf(format, args...),
	}
}

// contends reports whether a sibling would be built if it were alone. It looks at
// what the sibling asks for and not at its status, which may be of yesterday: two
// instances that become possible by the same event must agree on who goes first.
func contends(s Candidate, cfg config.Challenge) bool {
	return s.Instance.DeletionTimestamp == nil && s.Instance.Spec.TerminationReason == "" && judgeAlone(s, cfg) == nil
}

// goesFirst is a total order of an owner's instances, the same on every replica:
// one that was started before those that were not, then the older one.
func goesFirst(a, b *bergv1.ChallengeInstance) bool {
	if started := a.Status.InstanceID != ""; started != (b.Status.InstanceID != "") {
		return started
	}
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.UID < b.UID
}

func proofOf(instance *bergv1.ChallengeInstance) ownership.Proof {
	return ownership.Proof{Annotation: bergv1.AnnotationInstanceUID, UID: instance.UID}
}

// problemOf turns what stopped a write into a problem of that step's condition.
func problemOf(condition string, err error, flag string) *outcome.Problem {
	p := &outcome.Problem{Condition: condition, Message: redact(err.Error(), flag)}
	p.Err = errors.New(p.Message)
	switch outcome.CauseOf(err) {
	case outcome.NotOurs:
		p.Class, p.Reason = outcome.Foreign, bergv1.ReasonObjectConflict
		if condition == bergv1.ConditionNamespaceCreated {
			// The cache did not show the namespace yet; when it does, judge says whose
			// it is.
			p.Class, p.Reason = outcome.Raced, ""
		}
	case outcome.Overtaken:
		p.Class = outcome.Raced
	case outcome.Going:
		p.Class, p.Reason = outcome.Waiting, bergv1.ReasonWaiting
	case outcome.Contested:
		p.Class, p.Reason = outcome.Retry, bergv1.ReasonContested
	case outcome.NotInstalled:
		// Its definition wakes us.
		p.Class, p.Reason, p.Err = outcome.Blocked, bergv1.ReasonAPINotInstalled, nil
		p.Message = fmt.Sprintf("An API that this instance needs is not installed: %s", p.Message)
	case outcome.NotServed:
		p.Class, p.Reason = outcome.Foreign, bergv1.ReasonAPINotInstalled
		p.Message = fmt.Sprintf("An API that this instance needs is not installed: %s", p.Message)
	case outcome.Rejected:
		p.Class, p.Reason = outcome.Retry, bergv1.ReasonRefused
	case outcome.Failed:
		p.Class, p.Reason = outcome.Retry, bergv1.ReasonWriteFailed
	}
	return p
}

// shownErrors is how many errors of a Challenge one message names.
const shownErrors = 5

func summary(errs field.ErrorList) string {
	var parts []string
	for _, e := range errs[:min(len(errs), shownErrors)] {
		parts = append(parts, e.Error())
	}
	if more := len(errs) - shownErrors; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, "; ")
}
