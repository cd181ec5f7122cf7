package environment

import (
	"cmp"
	"errors"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// Outcome is what one pass saw and did, and all that a status is derived from.
type Outcome struct {
	Observed Observed
	// The problem of each step; nil for none.
	Namespace, Role, RoleBinding *outcome.Problem

	NamespaceCreated   bool
	RoleBindingCreated bool
}

// of returns the problem of the step that a condition stands for.
func (out Outcome) of(condition string) *outcome.Problem {
	switch condition {
	case quixv1.ConditionNamespaceReady:
		return out.Namespace
	case quixv1.ConditionRoleValidated:
		return out.Role
	default:
		return out.RoleBinding
	}
}

// problem is the one that the phase is about: a role that must not be bound,
// whatever else there is, or else the first.
func (out Outcome) problem() *outcome.Problem {
	if out.violation() {
		return out.Role
	}
	for _, step := range steps {
		if p := out.of(step); p != nil {
			return p
		}
	}
	return nil
}

// violation reports whether the ClusterRole exists and must not be bound.
func (out Outcome) violation() bool {
	return out.Role != nil && out.Role.Reason == quixv1.ReasonSecurityViolation
}

// reported reports whether the platform keeps its rights in spite of a violation.
func (out Outcome) reported(env *quixv1.Environment) bool {
	return out.violation() && out.Observed.RoleBinding != nil && roleBindingOwner(env).Owns(out.Observed.RoleBinding)
}

// raced reports whether what was seen is out of date, so that there is nothing to
// tell.
func (out Outcome) raced() bool {
	return slices.ContainsFunc(steps, func(step string) bool {
		p := out.of(step)
		return p != nil && p.Class == outcome.Stale
	})
}

// err is what must be tried again.
func (out Outcome) err() error {
	var errs []error
	for _, step := range steps {
		if p := out.of(step); p != nil {
			errs = append(errs, p.Err)
		}
	}
	return errors.Join(errs...)
}

// steps are the conditions of an environment that is made, in their order.
var steps = []string{quixv1.ConditionNamespaceReady, quixv1.ConditionRoleValidated, quixv1.ConditionRoleBindingReady}

// computeStarted writes the status of an environment that is about to be made.
func computeStarted(env *quixv1.Environment, suffix string, now time.Time) {
	s := &env.Status
	s.Phase, s.Message = quixv1.PhaseInProgress, "processing"
	s.NamespaceStatus = &quixv1.ResourceStatus{Phase: quixv1.ResourceCreating, ResourceName: cmp.Or(namespaceName(env), env.Spec.ID+suffix)}
	s.RoleBindingStatus = &quixv1.ResourceStatus{Phase: quixv1.ResourceCreating, ResourceName: cmp.Or(roleBindingName(env), newRoleBindingName(env.Spec.ID))}
	for _, step := range append(slices.Clone(steps), quixv1.ConditionReady) {
		setCondition(env, step, metav1.ConditionUnknown, quixv1.ReasonWaiting, "Not looked at yet", now)
	}
}

// computeStatus writes into the status of a live environment what an outcome means.
func computeStatus(env *quixv1.Environment, out Outcome, now time.Time) {
	s := &env.Status
	s.ObservedGeneration = env.Generation
	s.Phase, s.Message = quixv1.PhaseReady, "ready"
	if p := out.problem(); p != nil {
		s.Phase, s.Message = phaseOf(p), p.Message
	}
	s.NamespaceStatus = resourceStatus(namespaceName(env), out.Namespace)
	s.RoleBindingStatus = resourceStatus(roleBindingName(env), out.RoleBinding)
	switch {
	case out.RoleBinding != nil:
	case out.reported(env):
		s.RoleBindingStatus.Message = out.Role.Message
	case out.Role != nil:
		s.RoleBindingStatus.Phase, s.RoleBindingStatus.Message = quixv1.ResourceFailed, out.Role.Message
	case out.Namespace != nil:
		s.RoleBindingStatus.Phase, s.RoleBindingStatus.Message = quixv1.ResourceCreating, "waits for the namespace"
	}
	computeConditions(env, out, now)
}

func resourceStatus(name string, p *outcome.Problem) *quixv1.ResourceStatus {
	switch {
	case p == nil:
		return &quixv1.ResourceStatus{Phase: quixv1.ResourceActive, ResourceName: name}
	case phaseOf(p) == quixv1.PhaseInProgress:
		return &quixv1.ResourceStatus{Phase: quixv1.ResourceCreating, Message: p.Message, ResourceName: name}
	default:
		return &quixv1.ResourceStatus{Phase: quixv1.ResourceFailed, Message: p.Message, ResourceName: name}
	}
}

// phaseOf: what passes by itself is progress, the rest somebody must fix.
func phaseOf(p *outcome.Problem) quixv1.Phase {
	if p.Class == outcome.Waiting || p.Class == outcome.Retry {
		return quixv1.PhaseInProgress
	}
	return quixv1.PhaseFailed
}

// computeConditions writes every condition of a live environment.
func computeConditions(env *quixv1.Environment, out Outcome, now time.Time) {
	for _, step := range steps {
		first := out.problem()
		switch p := out.of(step); {
		case p != nil:
			setCondition(env, step, metav1.ConditionFalse, p.Reason, p.Message, now)
		case step == quixv1.ConditionRoleValidated:
			setCondition(env, step, metav1.ConditionTrue, quixv1.ReasonRoleValid, "The ClusterRole grants what it lists and no way to more", now)
		case step == quixv1.ConditionNamespaceReady || first == nil:
			setCondition(env, step, metav1.ConditionTrue, quixv1.ReasonCreated, "In place", now)
		case out.reported(env):
			setCondition(env, step, metav1.ConditionTrue, quixv1.ReasonCreated, "In place, and left there in spite of RoleValidated", now)
		case out.Role != nil:
			setCondition(env, step, metav1.ConditionFalse, out.Role.Reason, "The platform has no rights until RoleValidated is True", now)
		default:
			setCondition(env, step, metav1.ConditionUnknown, quixv1.ReasonWaiting, "Waits for "+first.Condition, now)
		}
	}
	if p := out.problem(); p != nil {
		setCondition(env, quixv1.ConditionReady, metav1.ConditionFalse, p.Reason, p.Message, now)
	} else {
		setCondition(env, quixv1.ConditionReady, metav1.ConditionTrue, quixv1.ReasonEnvironmentReady, "Namespace and role binding are in place", now)
	}
}

// cut brings what a status says beside its conditions to its length.
func cut(s *quixv1.EnvironmentStatus) {
	s.Message = conditions.Bound(s.Message)
	for _, r := range []*quixv1.ResourceStatus{s.NamespaceStatus, s.RoleBindingStatus} {
		if r != nil {
			r.Message = conditions.Bound(r.Message)
		}
	}
}

func setCondition(env *quixv1.Environment, conditionType string, status metav1.ConditionStatus, reason, message string, now time.Time) {
	conditions.Upsert(&env.Status.Conditions, env.Generation, now, metav1.Condition{
		Type: conditionType, Status: status, Reason: reason, Message: message,
	})
}
