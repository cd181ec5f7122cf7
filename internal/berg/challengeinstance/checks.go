package challengeinstance

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
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

// check returns why an instance cannot be built, nil when it can.
func check(o Observed, cfg config.Challenge) *outcome.Problem {
	if p := checkAlone(o.Candidate, cfg); p != nil {
		return p
	}
	if p := namespaceIsOurs(o); p != nil {
		return p
	}
	return ownerIsFree(o)
}

// checkAlone leaves aside what stands in the cluster already.
func checkAlone(c Candidate, cfg config.Challenge) *outcome.Problem {
	if p := checkWishes(c, cfg); p != nil {
		return p
	}
	return challengeIsNotFrozen(c)
}

// checkWishes leaves a freeze aside, too: an instance that lives is not held back by it.
func checkWishes(c Candidate, cfg config.Challenge) *outcome.Problem {
	for _, judgement := range checks {
		if p := judgement(c, cfg); p != nil {
			return p
		}
	}
	return nil
}

// checkAdoption returns why a live instance cannot be changed to its Challenge as
// it is now, nil when it can.
func checkAdoption(c Candidate, cfg config.Challenge) *outcome.Problem {
	c.Pinned = nil
	return checkWishes(c, cfg)
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
		Message: fmt.Sprintf("Challenge %s cannot be run: %s", c.Key, summary(errs, c.Instance.Spec.Flag)),
	}
}

// containers are those that the instance runs, or would.
func (c Candidate) containers() []bergv1.Container {
	if c.Pinned != nil {
		return c.Pinned.Containers
	}
	return snapshotOf(c.Challenge).Containers
}

func flagIsThere(c Candidate, _ config.Challenge) *outcome.Problem {
	if c.Instance.Spec.Flag != "" {
		return nil
	}
	if !needsFlag(c.containers()) {
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
	ns, owner := o.Namespace, ownerOf(o.Instance)
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
	switch _, provable := instanceOf(ns); {
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

// ownerBusy names the one right before this one, and not the one that runs: of hundreds
// that wait only the next one has something new to tell when that changes, and it is what
// a player can delete to move on.
func ownerBusy(o Observed) *outcome.Problem {
	return &outcome.Problem{
		Condition: bergv1.ConditionNamespaceCreated, Reason: bergv1.ReasonOwnerBusy, Class: outcome.Waiting,
		Message: fmt.Sprintf("Instance %s of the same owner goes first: this one starts when that one and its namespace are gone",
			client.ObjectKeyFromObject(cmp.Or(o.Ahead, o.Holder))),
	}
}

// mayContend reports whether a sibling is one that is to be built at all. Whether it
// contends is judged of what it asks for and not of its status, which may be of yesterday:
// two instances that become possible by the same event must agree on who goes first.
func mayContend(s *bergv1.ChallengeInstance) bool {
	return s.DeletionTimestamp == nil && s.Spec.TerminationReason == ""
}

// holder returns to which instance a namespace belongs, nil if to none.
func holder(ns *corev1.Namespace, instances []*bergv1.ChallengeInstance) *bergv1.ChallengeInstance {
	if ns == nil {
		return nil
	}
	for _, i := range instances {
		if ownerOf(i).Owns(ns) {
			return i
		}
	}
	return nil
}

// ahead returns the last of those that come before an instance and contend.
func ahead(of *bergv1.ChallengeInstance, siblings []*bergv1.ChallengeInstance, contends func(*bergv1.ChallengeInstance) bool) *bergv1.ChallengeInstance {
	before := inOrder(siblings, func(s *bergv1.ChallengeInstance) bool { return goesFirst(s, of) })
	for _, s := range slices.Backward(before) {
		if contends(s) {
			return s
		}
	}
	return nil
}

// behind returns the first of those that come after an instance and contend.
func behind(of *bergv1.ChallengeInstance, siblings []*bergv1.ChallengeInstance, contends func(*bergv1.ChallengeInstance) bool) *bergv1.ChallengeInstance {
	return first(inOrder(siblings, func(s *bergv1.ChallengeInstance) bool { return goesFirst(of, s) }), contends)
}

// first returns the first of instances in their order that contends.
func first(ordered []*bergv1.ChallengeInstance, contends func(*bergv1.ChallengeInstance) bool) *bergv1.ChallengeInstance {
	if at := slices.IndexFunc(ordered, contends); at >= 0 {
		return ordered[at]
	}
	return nil
}

// inOrder returns the instances that are asked for in the order in which they are
// built.
func inOrder(instances []*bergv1.ChallengeInstance, which func(*bergv1.ChallengeInstance) bool) []*bergv1.ChallengeInstance {
	var out []*bergv1.ChallengeInstance
	for _, i := range instances {
		if which(i) {
			out = append(out, i)
		}
	}
	slices.SortFunc(out, func(a, b *bergv1.ChallengeInstance) int {
		switch {
		case a.UID == b.UID:
			return 0
		case goesFirst(a, b):
			return -1
		default:
			return 1
		}
	})
	return out
}

// goesFirst is a total order of an owner's instances, the same on every replica:
// one that was started before those that were not, then the older one.
func goesFirst(a, b *bergv1.ChallengeInstance) bool {
	if aStarted := a.Status.InstanceID != ""; aStarted != (b.Status.InstanceID != "") {
		return aStarted
	}
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.UID < b.UID
}

// problemOf turns what stopped a write into a problem of that step's condition.
func problemOf(conditionType string, err error, flag string) *outcome.Problem {
	p := &outcome.Problem{Condition: conditionType, Message: redact(err.Error(), flag)}
	p.Err = errors.New(p.Message)
	switch outcome.CauseOf(err) {
	case outcome.NotOwned:
		p.Class, p.Reason = outcome.External, bergv1.ReasonObjectConflict
		if conditionType == bergv1.ConditionNamespaceCreated {
			// The cache did not show the namespace yet; when it does, judge says whose
			// it is.
			p.Class, p.Reason = outcome.Stale, ""
		}
	case outcome.Conflict:
		p.Class = outcome.Stale
	case outcome.Terminating:
		p.Class, p.Reason = outcome.Waiting, bergv1.ReasonWaiting
	case outcome.Contested:
		p.Class, p.Reason = outcome.Retry, bergv1.ReasonContested
	case outcome.NotInstalled:
		// Its definition wakes us.
		p.Class, p.Reason, p.Err = outcome.Blocked, bergv1.ReasonAPINotInstalled, nil
		p.Message = fmt.Sprintf("An API that this instance needs is not installed: %s", p.Message)
	case outcome.NotServed:
		p.Class, p.Reason = outcome.External, bergv1.ReasonAPINotInstalled
		p.Message = fmt.Sprintf("An API that this instance needs is not installed: %s", p.Message)
	case outcome.Rejected:
		p.Class, p.Reason = outcome.Retry, bergv1.ReasonRefused
	case outcome.Failed:
		p.Class, p.Reason = outcome.Retry, bergv1.ReasonWriteFailed
	}
	return p
}

const (
	// shownErrors is how many errors of a Challenge one message names, as long as they
	// do not fill it.
	shownErrors = 5
	// fullSummary is from which length, in bytes, it names no further one.
	fullSummary = conditions.MaxMessage / 2
	// maxField and longestDetail are what an error may say of where it is, and of
	// what to do, in bytes.
	maxField, maxDetail = 192, 512
)

func summary(errs field.ErrorList, flag string) string {
	var text string
	shown := 0
	for shown < min(len(errs), shownErrors) && len(text) < fullSummary {
		if shown > 0 {
			text += "; "
		}
		text += brief(*errs[shown], flag).Error()
		shown++
	}
	if more := len(errs) - shown; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// brief returns an error that quotes only the ends of what is long: what to do about it would
// not be seen behind it. The flag is taken out first: half of it would not be found.
func brief(e field.Error, flag string) *field.Error {
	redacted := redaction(flag)
	e.Field = conditions.Shorten(redacted(e.Field), maxField)
	e.Detail = conditions.Shorten(redacted(e.Detail), maxDetail)
	value, isText := e.BadValue.(string)
	if !isText {
		encoded, _ := json.Marshal(e.BadValue) // what cannot be encoded is not quoted so
		value = string(encoded)
	}
	if len(value) > conditions.MaxValue {
		e.BadValue = conditions.Value(redacted(value))
	}
	return &e
}
