package challengeinstance

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

// Class says what a problem means for the instance and who ends it.
type Class int

const (
	// Waiting: something that is under way must end; its event wakes us.
	Waiting Class = iota
	// UnderWay: nothing is wrong, the step is about to be taken.
	UnderWay
	// Raced: somebody else wrote at the same time; what they wrote decides, so
	// there is nothing to tell yet.
	Raced
	// Blocked: somebody must mend something that we watch; its event wakes us.
	// The instance is Failed until then.
	Blocked
	// Foreign: somebody must mend something that we do not watch. The instance
	// is Failed until then, and we look again with growing pauses.
	Foreign
	// Retry: the API server refused or failed; we try again with growing pauses.
	Retry
)

// Problem is why an instance cannot go on, and on which condition it shows.
type Problem struct {
	Condition string
	Reason    string
	Message   string
	Class     Class
	// Err is what the API server said, for Foreign and Retry.
	Err error
}

// checks are what must hold of an instance itself before it is built, in the
// order of the conditions that they show on. The first problem decides.
var checks = []func(Candidate) *Problem{
	challengeExists,
	challengeHasContainers,
	challengeIsValid,
	flagIsThere,
}

// judge returns why an instance cannot be built, nil when it can.
func judge(o Observed) *Problem {
	if p := judgeAlone(o.Candidate); p != nil {
		return p
	}
	if p := namespaceIsOurs(o); p != nil {
		return p
	}
	return ownerIsFree(o)
}

// judgeAlone leaves aside what stands in the cluster already.
func judgeAlone(c Candidate) *Problem {
	for _, check := range checks {
		if p := check(c); p != nil {
			return p
		}
	}
	return nil
}

// judgeAdoption returns why a live instance cannot be changed to its Challenge as
// it is now, nil when it can.
func judgeAdoption(c Candidate) *Problem {
	c.Pinned = nil
	return judgeAlone(c)
}

func challengeExists(c Candidate) *Problem {
	if c.Pinned != nil || c.Challenge != nil {
		return nil
	}
	return &Problem{
		Condition: bergv1.ConditionChallengeFound, Reason: bergv1.ReasonChallengeMissing, Class: Blocked,
		Message: fmt.Sprintf("Challenge %s not found: create it, or delete this instance", c.Key),
	}
}

func challengeHasContainers(c Candidate) *Problem {
	if c.Pinned != nil || len(c.Challenge.Spec.Containers) > 0 {
		return nil
	}
	return &Problem{
		Condition: bergv1.ConditionChallengeFound, Reason: bergv1.ReasonNothingToRun, Class: Blocked,
		Message: fmt.Sprintf("Challenge %s has no containers: there is nothing to run", c.Key),
	}
}

func challengeIsValid(c Candidate) *Problem {
	if c.Pinned != nil {
		return nil
	}
	errs := validate(snapshotOf(c.Challenge))
	if len(errs) == 0 {
		return nil
	}
	return &Problem{
		Condition: bergv1.ConditionChallengeFound, Reason: bergv1.ReasonInvalidChallenge, Class: Blocked,
		Message: fmt.Sprintf("Challenge %s cannot be run: %s", c.Key, summary(errs)),
	}
}

func flagIsThere(c Candidate) *Problem {
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
	return &Problem{
		Condition: bergv1.ConditionFlagValidation, Reason: bergv1.ReasonFlagMissing, Class: Blocked,
		Message: "The Challenge asks for a dynamic flag and spec.flag is empty: set spec.flag",
	}
}

// namespaceIsOurs: who holds the owner's namespace keeps it.
func namespaceIsOurs(o Observed) *Problem {
	ns, proof := o.Namespace, proofOf(o.Instance)
	if ns == nil || proof.Holds(ns) && ns.DeletionTimestamp == nil {
		return nil
	}
	if proof.Holds(ns) {
		return &Problem{
			Condition: bergv1.ConditionNamespaceCreated, Reason: bergv1.ReasonWaiting, Class: Waiting,
			Message: fmt.Sprintf("Namespace %s is being deleted and will be created again", ns.Name),
		}
	}
	for _, s := range o.Siblings {
		if proofOf(s.Instance).Holds(ns) {
			return ownerBusy("Namespace %s belongs to instance %s of the same owner: this one starts when that one is gone",
				ns.Name, client.ObjectKeyFromObject(s.Instance))
		}
	}
	return &Problem{
		Condition: bergv1.ConditionNamespaceCreated, Reason: bergv1.ReasonNamespaceConflict, Class: Blocked,
		Message: fmt.Sprintf("Namespace %s exists and does not belong to this instance; it was left untouched: delete or rename it", ns.Name),
	}
}

// ownerIsFree: while nobody holds the namespace, the first of the owner's
// instances that can be built goes first.
func ownerIsFree(o Observed) *Problem {
	if o.Namespace != nil {
		return nil // and it is ours
	}
	for _, s := range o.Siblings {
		if contends(s) && goesFirst(s.Instance, o.Instance) {
			return ownerBusy("Instance %s of the same owner goes first: this one starts when that one is gone",
				client.ObjectKeyFromObject(s.Instance))
		}
	}
	return nil
}

func ownerBusy(format string, args ...any) *Problem {
	return &Problem{
		Condition: bergv1.ConditionNamespaceCreated, Reason: bergv1.ReasonOwnerBusy, Class: Waiting,
		Message: fmt.Sprintf(format, args...),
	}
}

// contends reports whether a sibling would be built if it were alone. It looks at
// what the sibling asks for and not at its status, which may be of yesterday: two
// instances that become possible by the same event must agree on who goes first.
func contends(s Candidate) bool {
	return s.Instance.DeletionTimestamp == nil && s.Instance.Spec.TerminationReason == "" && judgeAlone(s) == nil
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
func problemOf(condition string, err error, flag string) *Problem {
	p := &Problem{Condition: condition, Message: redact(err.Error(), flag)}
	p.Err = errors.New(p.Message)
	var refused *ownership.RefusedError
	var terminating *apply.TerminatingError
	var contested *apply.ContestedError
	switch {
	case errors.As(err, &refused) && condition == bergv1.ConditionNamespaceCreated:
		// The cache did not show the namespace yet; when it does, judge says whose
		// it is.
		p.Class = Raced
	case errors.As(err, &refused):
		p.Class, p.Reason = Foreign, bergv1.ReasonObjectConflict
	case errors.As(err, &terminating), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		p.Class, p.Reason = Waiting, bergv1.ReasonWaiting
	case errors.As(err, &contested):
		p.Class, p.Reason = Retry, bergv1.ReasonContested
	case meta.IsNoMatchError(err):
		// Its definition wakes us.
		p.Class, p.Reason, p.Err = Blocked, bergv1.ReasonAPINotInstalled, nil
		p.Message = fmt.Sprintf("An API that this instance needs is not installed: %s", p.Message)
	case notServed(err), apierrors.IsMethodNotSupported(err):
		// It is being removed, or this API server has not heard of it yet.
		p.Class, p.Reason = Foreign, bergv1.ReasonAPINotInstalled
		p.Message = fmt.Sprintf("An API that this instance needs is not installed: %s", p.Message)
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		p.Class = Raced
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err):
		p.Class, p.Reason = Retry, bergv1.ReasonRefused
	default:
		p.Class, p.Reason = Retry, bergv1.ReasonWriteFailed
	}
	return p
}

// notServed reports whether the API server did not know the kind of a request: an
// answer of its own that names no object.
func notServed(err error) bool {
	var status apierrors.APIStatus
	return apierrors.IsNotFound(err) && errors.As(err, &status) &&
		(status.Status().Details == nil || status.Status().Details.Name == "")
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
