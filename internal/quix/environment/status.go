package environment

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// mainProblem is the problem that decides the phase: a role that must not be bound, or else the first one.
func mainProblem(problems outcome.Problems) *outcome.Problem {
	if role := problems.On(quixv1.ConditionRoleValidated); isViolation(role) {
		return role
	}
	for _, step := range steps {
		if p := problems.On(step); p != nil {
			return p
		}
	}
	return nil
}

// isViolation reports whether the problem is that the ClusterRole must not be bound.
func isViolation(role *outcome.Problem) bool {
	return role != nil && role.Reason == quixv1.ReasonSecurityViolation
}

// keptBinding reports whether the platform keeps its rights in spite of a violation.
func keptBinding(env *quixv1.Environment, s State, problems outcome.Problems) bool {
	return isViolation(problems.On(quixv1.ConditionRoleValidated)) && s.RoleBinding != nil && roleBindingOwner(env).Owns(s.RoleBinding)
}

// steps are the conditions of a live environment, in the order of the steps.
var steps = []string{quixv1.ConditionNamespaceReady, quixv1.ConditionRoleValidated, quixv1.ConditionRoleBindingReady}

// computeStarted writes the status of an environment before its first object is created.
func computeStarted(env *quixv1.Environment, suffix string, now time.Time) {
	s := &env.Status
	s.Phase, s.Message = quixv1.PhaseInProgress, "processing"
	s.NamespaceStatus = &quixv1.ResourceStatus{Phase: quixv1.ResourceCreating, ResourceName: cmp.Or(namespaceName(env), env.Spec.ID+suffix)}
	s.RoleBindingStatus = &quixv1.ResourceStatus{Phase: quixv1.ResourceCreating, ResourceName: cmp.Or(roleBindingName(env), newRoleBindingName(env.Spec.ID))}
	set := conditions.NewSetter(env, &s.Conditions, now)
	for _, step := range append(slices.Clone(steps), quixv1.ConditionReady) {
		set(step, metav1.ConditionUnknown, quixv1.ReasonWaiting, "Not checked yet")
	}
}

// computeStatus computes the status of a live environment from observations and problems.
func computeStatus(env *quixv1.Environment, state State, problems outcome.Problems, now time.Time) reconcile.Ready {
	s := &env.Status
	// From now on the UID identifies the namespace, and the token is not needed any more.
	if state.NamespaceUID != "" {
		s.NamespaceUID, s.NamespaceTokenHash = state.NamespaceUID, ""
	}
	main := mainProblem(problems)
	s.Phase, s.Message = quixv1.PhaseReady, "ready"
	if main != nil {
		s.Phase, s.Message = phaseFor(main), main.Message
	}
	role, binding := problems.On(quixv1.ConditionRoleValidated), problems.On(quixv1.ConditionRoleBindingReady)
	s.NamespaceStatus = resourceStatus(namespaceName(env), problems.On(quixv1.ConditionNamespaceReady))
	s.RoleBindingStatus = resourceStatus(roleBindingName(env), binding)
	switch {
	case binding != nil:
	case keptBinding(env, state, problems):
		s.RoleBindingStatus.Message = role.Message
	case role != nil:
		s.RoleBindingStatus.Phase, s.RoleBindingStatus.Message = quixv1.ResourceFailed, role.Message
	case problems.On(quixv1.ConditionNamespaceReady) != nil:
		s.RoleBindingStatus.Phase, s.RoleBindingStatus.Message = quixv1.ResourceCreating, "waiting for the namespace"
	}
	computeConditions(env, state, problems, now)
	return reconcile.ReadyUnless(main, quixv1.ReasonEnvironmentReady, "Namespace and role binding are in place")
}

func resourceStatus(name string, p *outcome.Problem) *quixv1.ResourceStatus {
	switch {
	case p == nil:
		return &quixv1.ResourceStatus{Phase: quixv1.ResourceActive, ResourceName: name}
	case phaseFor(p) == quixv1.PhaseInProgress:
		return &quixv1.ResourceStatus{Phase: quixv1.ResourceCreating, Message: p.Message, ResourceName: name}
	default:
		return &quixv1.ResourceStatus{Phase: quixv1.ResourceFailed, Message: p.Message, ResourceName: name}
	}
}

// phaseFor is Failed for a problem that a person must fix.
func phaseFor(p *outcome.Problem) quixv1.Phase {
	if p.Class == outcome.Waiting || p.Class == outcome.Retry {
		return quixv1.PhaseInProgress
	}
	return quixv1.PhaseFailed
}

// computeConditions shows the binding as it is: one that was kept is True, although the role is not valid.
func computeConditions(env *quixv1.Environment, state State, problems outcome.Problems, now time.Time) {
	set := conditions.NewSetter(env, &env.Status.Conditions, now)
	main, role := mainProblem(problems), problems.On(quixv1.ConditionRoleValidated)
	for _, step := range steps {
		switch p := problems.On(step); {
		case p != nil:
			set(step, metav1.ConditionFalse, p.Reason, p.Message)
		case step == quixv1.ConditionRoleValidated:
			set(step, metav1.ConditionTrue, quixv1.ReasonRoleValid, "The ClusterRole grants what it lists and no way to more")
		case step == quixv1.ConditionNamespaceReady || main == nil:
			set(step, metav1.ConditionTrue, quixv1.ReasonCreated, "In place")
		case keptBinding(env, state, problems):
			set(step, metav1.ConditionTrue, quixv1.ReasonCreated, "In place. It was not deleted although RoleValidated is False")
		case role != nil:
			set(step, metav1.ConditionFalse, role.Reason, "The platform has no rights until RoleValidated is True")
		default:
			set(step, metav1.ConditionUnknown, quixv1.ReasonWaiting, "Waiting for "+main.Condition)
		}
	}
}

// boundMessages shortens the texts of a status that are not in conditions.
func boundMessages(s *quixv1.EnvironmentStatus) {
	s.Message = conditions.Bound(s.Message)
	for _, r := range []*quixv1.ResourceStatus{s.NamespaceStatus, s.RoleBindingStatus} {
		if r != nil {
			r.Message = conditions.Bound(r.Message)
		}
	}
}
