package environment

import (
	"fmt"
	"regexp"

	rbacv1 "k8s.io/api/rbac/v1"

	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// check returns the problems of an environment: first of its namespace, then of the platform's role and binding.
func check(env *quixv1.Environment, o Observed, cfg config.Quix) (problems outcome.Problems) {
	problems.Add(checkNamespace(env, o, cfg.IDPattern))
	problems.Add(checkRole(o.Role, cfg.ClusterRoleName))
	problems.Add(checkFence(Inputs{env, o.RoleBinding, cfg}, o.Unfenced))
	return problems
}

// checkFence lets the platform get rights only while the right to bind is limited. Rights that it has already stay.
func checkFence(in Inputs, unfenced string) *outcome.Problem {
	if unfenced == "" || hasRights(in) {
		return nil
	}
	return &outcome.Problem{Condition: quixv1.ConditionRoleBindingReady, Reason: quixv1.ReasonAdmissionPolicyMissing, Class: outcome.Blocked, Message: unfenced}
}

// checkNamespace checks that the namespace may be created, or belongs to the environment. Each case says what to do, since
// nothing is ever taken away from another owner.
func checkNamespace(env *quixv1.Environment, o Observed, pattern *regexp.Regexp) *outcome.Problem {
	blocked := func(reason, format string, args ...any) *outcome.Problem {
		return &outcome.Problem{
			Condition: quixv1.ConditionNamespaceReady, Reason: reason, Class: outcome.Blocked,
			Message: fmt.Sprintf(format, args...),
		}
	}
	ns := o.Namespace
	switch {
	case ns == nil && pattern != nil && !pattern.MatchString(env.Spec.ID):
		return blocked(quixv1.ReasonInvalidEnvironmentID,
			"invalid environment ID %q: it does not match %s; delete this Environment and create one whose ID does", env.Spec.ID, pattern)
	case ns == nil, namespaceOwner(env).Owns(ns), handedOver(env, ns):
		return nil
	case ns.Labels[quixv1.LabelManagedBy] != quixv1.ManagedBy && ns.Labels[quixv1.LabelEnvironmentID] == env.Spec.ID:
		return blocked(quixv1.ReasonNamespaceNotManaged,
			"namespace conflict: %s exists and is not managed by this operator: it was released. It was left untouched. "+
				"If all in it belongs to this Environment, let an administrator hand it over: %s. Otherwise delete it, or delete this Environment", ns.Name, handOver(env, ns))
	case ns.Labels[quixv1.LabelManagedBy] != quixv1.ManagedBy:
		return blocked(quixv1.ReasonNamespaceNotManaged,
			"namespace conflict: %s exists and is not managed by this operator. It was left untouched. Delete it, or delete this Environment", ns.Name)
	case labelledOwner(env).Owns(ns):
		return blocked(quixv1.ReasonNamespaceOwnershipConflict,
			"namespace conflict: %s carries the labels and the UID of this Environment, but the operator did not create it for this Environment: another user did, or the status was lost. It was left untouched. Delete it. "+
				"If all in it belongs to this Environment, let an administrator set status.namespaceUID of this Environment to the UID of the namespace: %s", ns.Name, handOver(env, ns))
	case ns.Annotations[quixv1.AnnotationUID] == "":
		return blocked(quixv1.ReasonNamespaceOwnershipConflict,
			"namespace conflict: %s has no UID of an Environment (%s): an older operator or another user created it. It was left untouched. "+
				"If all in it belongs to this Environment, let an administrator hand it over: %s. "+
				"Otherwise delete this Environment", ns.Name, holder(ns.Labels, ns.Annotations), handOver(env, ns))
	case o.HolderGone:
		return blocked(quixv1.ReasonNamespaceOwnershipConflict,
			"namespace conflict: %s belonged to another Environment (%s), which does not exist: it was restored from a backup, or released. It was left untouched. "+
				"If all in it belongs to this Environment, let an administrator hand it over: %s. "+
				"Otherwise delete this Environment and create one with another ID", ns.Name, holder(ns.Labels, ns.Annotations), handOver(env, ns))
	default:
		return blocked(quixv1.ReasonNamespaceOwnershipConflict,
			"namespace conflict: %s belongs to another Environment (%s). It was left untouched. Delete this Environment and create one with another ID, or delete the other one if its data is not needed", ns.Name, holder(ns.Labels, ns.Annotations))
	}
}

// holder describes the Environment that the metadata of a namespace name as its owner.
func holder(labels, annotations map[string]string) string {
	return fmt.Sprintf("name %q, id %q, UID %q",
		annotations[quixv1.AnnotationResourceName], labels[quixv1.LabelEnvironmentID], annotations[quixv1.AnnotationUID])
}

// checkRole decides whether the platform's ClusterRole may be bound.
func checkRole(role *rbacv1.ClusterRole, name string) *outcome.Problem {
	p := &outcome.Problem{Condition: quixv1.ConditionRoleValidated, Class: outcome.Blocked}
	if role == nil {
		p.Reason = quixv1.ReasonRoleMissing
		p.Message = fmt.Sprintf("cannot get ClusterRole %s for the role binding: create it, or correct CLUSTER_ROLE_NAME of the operator", name)
		return p
	}
	if err := validateClusterRole(role); err != nil {
		p.Reason, p.Message = quixv1.ReasonSecurityViolation, err.Error()
		return p
	}
	return nil
}

// namespaceProblem returns the problem for a failed write of the namespace; nil for none.
func namespaceProblem(o Observed, err error) *outcome.Problem {
	return writeProblem(quixv1.ConditionNamespaceReady, o.Namespace == nil, err,
		quixv1.ReasonNamespaceCreationFailed, quixv1.ReasonNamespaceReconciliationFailed, quixv1.ReasonNamespaceOwnershipConflict)
}

// roleBindingProblem returns the problem for a failed write of the binding; nil for none.
func roleBindingProblem(o Observed, err error) *outcome.Problem {
	return writeProblem(quixv1.ConditionRoleBindingReady, o.RoleBinding == nil, err,
		quixv1.ReasonRoleBindingCreationFailed, quixv1.ReasonRoleBindingReconciliationFailed, quixv1.ReasonRoleBindingConflict)
}

// writeProblem returns the problem for a failed write, nil for none. Of its reasons one is for a creation, one for an update, and one for
// an object that belongs to another owner. Only a wait and a contest have reasons of their own.
func writeProblem(condition string, missing bool, err error, creation, update, conflict string) *outcome.Problem {
	p := outcome.NewProblem(condition, err)
	switch {
	case p == nil || p.Reason == outcome.ReasonWaiting || p.Reason == outcome.ReasonContested:
	case p.Reason == outcome.ReasonOwnershipConflict:
		p.Reason = conflict
	case missing:
		p.Reason = creation
	default:
		p.Reason = update
	}
	return p
}

// retryProblem is a failure that passes by itself.
func retryProblem(condition, reason string, err error) *outcome.Problem {
	return &outcome.Problem{Condition: condition, Reason: reason, Class: outcome.Retry, Message: err.Error(), Err: err}
}
