package challenge

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

// check returns the problem that keeps a challenge from being built, nil when there is none. A started challenge
// is built from its snapshot, which was valid at the start. The first problem is returned. Each of them must be corrected in
// another object.
func check(o Observed, cfg config.HexaCTF) *outcome.Problem {
	if o.Started != nil || o.Inherited {
		return nil
	}
	blocked := func(reason, message string) *outcome.Problem {
		return &outcome.Problem{Condition: hexactfv1.ConditionDefinitionFound, Reason: reason, Class: outcome.Blocked, Message: message}
	}
	c := o.Challenge
	if errs := validateIdentity(challengeIdentity(c)); len(errs) > 0 {
		return blocked(hexactfv1.ReasonInvalidLabels, summary(errs))
	}
	if ns := c.Spec.Namespace; ns != "" && ns != c.Namespace {
		return blocked(hexactfv1.ReasonNamespaceMismatch,
			fmt.Sprintf("spec.namespace: is %q, and this Challenge is in %q, where all of it is made: create it in the other namespace, or leave the field out", conditions.Value(ns), c.Namespace))
	}
	if o.Definition == nil {
		return blocked(hexactfv1.ReasonDefinitionNotFound,
			fmt.Sprintf("spec.definition: ChallengeDefinition %s not found: create it, or delete this Challenge", client.ObjectKey{Namespace: c.Namespace, Name: c.Spec.Definition}))
	}
	if errs := validate(o.Definition, cfg); len(errs) > 0 {
		return blocked(hexactfv1.ReasonInvalidDefinition, fmt.Sprintf("ChallengeDefinition %s cannot be run: %s", c.Spec.Definition, summary(errs)))
	}
	return nil
}

// terminal reports whether a problem ends a challenge that never ran: it cannot be fixed, or was not fixed within the
// timeout. A definition that is invalid ends nothing: its author may correct it.
func terminal(c *hexactfv1.Challenge, p *outcome.Problem, timeout time.Duration, now time.Time) bool {
	if p == nil {
		return false
	}
	switch p.Reason {
	case hexactfv1.ReasonInvalidLabels, hexactfv1.ReasonNamespaceMismatch:
		return true
	case hexactfv1.ReasonDefinitionNotFound:
		since := missingSince(c)
		return since != nil && !now.Before(since.Add(timeout))
	default:
		return false
	}
}

// newProblem returns the problem for a failed write. other describes the owner of an object that has the
// name already.
func newProblem(err error, other otherOwner) *outcome.Problem {
	p := outcome.NewProblem(hexactfv1.ConditionResourcesCreated, err)
	var refused *ownership.RefusedError
	switch {
	case other.Challenge != nil && errors.As(err, &refused):
		p.Message = fmt.Sprintf("%s %s/%s belongs to %s, whose objects have the same names, and was left untouched. Delete that Challenge or this one, or rename a component of its definition",
			refused.Kind, refused.Namespace, refused.Name, describe(other.Challenge))
	case other.Terminating:
		// Its deletion may not trigger a reconciliation of this one, so it is tried again.
		p.Class, p.Reason, p.Err = outcome.Waiting, hexactfv1.ReasonWaiting, outcome.ErrConflict
		p.Message = "An object of an earlier Challenge is being deleted and will be created again"
	}
	return p
}

const (
	// shownErrors is how many errors one message names.
	shownErrors = 5
	// maxError is the length of one of them, in bytes.
	maxError = 400
)

func summary(errs field.ErrorList) string {
	var text string
	for i, e := range errs[:min(len(errs), shownErrors)] {
		if i > 0 {
			text += "; "
		}
		text += conditions.Shorten(e.Error(), maxError)
	}
	if omitted := len(errs) - shownErrors; omitted > 0 {
		text += fmt.Sprintf("; and %d more", omitted)
	}
	return text
}
