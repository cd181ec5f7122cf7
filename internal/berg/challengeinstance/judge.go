package challengeinstance

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/validation/field"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

// Class says what a problem means for the instance and who ends it.
type Class int

const (
	// Waiting: something that is under way must end; its event wakes us.
	Waiting Class = iota
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

// judge decides, before anything is written, whether the instance may be built.
// It returns nil when it may. The checks stand in the order of the conditions
// that they show on.
func judge(instance *bergv1.ChallengeInstance, o Observed, challenge string) *Problem {
	started := instance.Status.ChallengeSnapshot != nil
	if !started {
		if p := judgeChallenge(o.Challenge, challenge); p != nil {
			return p
		}
	}
	if p := judgeFlag(instance, o); p != nil {
		return p
	}
	return judgeNamespace(instance, o)
}

func judgeChallenge(c *bergv1.Challenge, name string) *Problem {
	if c == nil {
		return &Problem{
			Condition: bergv1.ConditionChallengeFound, Reason: bergv1.ReasonChallengeMissing, Class: Blocked,
			Message: fmt.Sprintf("Challenge %s not found: create it, or delete this instance", name),
		}
	}
	if len(c.Spec.Containers) == 0 {
		return &Problem{
			Condition: bergv1.ConditionChallengeFound, Reason: bergv1.ReasonNothingToRun, Class: Blocked,
			Message: fmt.Sprintf("Challenge %s has no containers: there is nothing to run", name),
		}
	}
	if errs := validate(snapshotOf(c)); len(errs) > 0 {
		return &Problem{
			Condition: bergv1.ConditionChallengeFound, Reason: bergv1.ReasonInvalidChallenge, Class: Blocked,
			Message: fmt.Sprintf("Challenge %s cannot be run: %s", name, summary(errs)),
		}
	}
	return nil
}

func judgeFlag(instance *bergv1.ChallengeInstance, o Observed) *Problem {
	if instance.Spec.Flag != "" {
		return nil
	}
	var containers []bergv1.Container
	if raw := instance.Status.ChallengeSnapshot; raw != nil {
		s, err := parseSnapshot(raw)
		if err != nil {
			return nil // the plan fails on it and says so
		}
		containers = s.Containers
	} else if o.Challenge != nil {
		containers = o.Challenge.Spec.Containers
	}
	if !needsFlag(containers) {
		return nil
	}
	return &Problem{
		Condition: bergv1.ConditionFlagValidation, Reason: bergv1.ReasonFlagMissing, Class: Blocked,
		Message: "The Challenge asks for a dynamic flag and spec.flag is empty: set spec.flag",
	}
}

func judgeNamespace(instance *bergv1.ChallengeInstance, o Observed) *Problem {
	proof := proofOf(instance)
	if ns := o.Namespace; ns != nil {
		switch holder := holderOf(ns, o.Siblings); {
		case proof.Holds(ns) && ns.DeletionTimestamp == nil:
			return nil
		case proof.Holds(ns):
			return &Problem{
				Condition: bergv1.ConditionNamespaceCreated, Reason: bergv1.ReasonWaiting, Class: Waiting,
				Message: fmt.Sprintf("Namespace %s is being deleted and will be created again", ns.Name),
			}
		case holder != "":
			return ownerBusy(fmt.Sprintf("Namespace %s belongs to instance %s of the same owner: this one starts when that one is gone", ns.Name, holder))
		default:
			return &Problem{
				Condition: bergv1.ConditionNamespaceCreated, Reason: bergv1.ReasonNamespaceConflict, Class: Blocked,
				Message: fmt.Sprintf("Namespace %s exists and does not belong to this instance; it was left untouched: delete or rename it", ns.Name),
			}
		}
	}
	for _, s := range o.Siblings {
		if claims(&s) && goesFirst(&s, instance) {
			return ownerBusy(fmt.Sprintf("Instance %s/%s of the same owner was created earlier: this one starts when that one is gone", s.Namespace, s.Name))
		}
	}
	return nil
}

func ownerBusy(message string) *Problem {
	return &Problem{Condition: bergv1.ConditionNamespaceCreated, Reason: bergv1.ReasonOwnerBusy, Class: Waiting, Message: message}
}

// holderOf names the sibling that a namespace belongs to, "" if none.
func holderOf(ns *corev1.Namespace, siblings []bergv1.ChallengeInstance) string {
	for i := range siblings {
		if proofOf(&siblings[i]).Holds(ns) {
			return siblings[i].Namespace + "/" + siblings[i].Name
		}
	}
	return ""
}

// claims reports whether an instance without a namespace may still want one.
func claims(s *bergv1.ChallengeInstance) bool {
	return s.DeletionTimestamp == nil && s.Spec.TerminationReason == "" && s.Status.Phase != bergv1.PhaseFailed
}

// goesFirst orders two instances of one owner the same way on every replica.
func goesFirst(a, b *bergv1.ChallengeInstance) bool {
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
	case errors.As(err, &refused):
		p.Class, p.Reason = Foreign, bergv1.ReasonObjectConflict
		if condition == bergv1.ConditionNamespaceCreated {
			p.Reason = bergv1.ReasonNamespaceConflict
		}
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
