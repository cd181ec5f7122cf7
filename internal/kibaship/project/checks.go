package project

import (
	"fmt"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kibaship/naming"
	"github.com/bergctf/berg-operator/internal/kibaship/rules"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

func blocked(condition, reason, format string, args ...any) *outcome.Problem {
	return &outcome.Problem{Condition: condition, Reason: reason, Class: outcome.Blocked, Message: fmt.Sprintf(format, args...)}
}

// check applies the rules of the webhook, which may have been bypassed.
func check(p *kibashipv1.Project, o Observed) (problems outcome.Problems) {
	all := rules.Project(p)
	if len(all) == 0 {
		// Only the first kind of problem is reported. The next one is found when it is corrected.
		all = rules.UUIDTaken(p, o.SameUUID)
	}
	if len(all) == 0 && p.Spec.Class != "" && o.Class == nil {
		all = rules.UnknownClass(p.Spec.Class, o.Classes)
	}
	if len(all) == 0 {
		return nil
	}
	problems.Add(blocked(kibashipv1.ConditionAccepted, all[0].Reason, "%s", all.String()))
	return problems
}

// checkNamespace decides whether the namespace may be created, or belongs to the Project. The name alone decides nothing. Without
// the UID in the status, a namespace with all labels right may still be another user's.
func checkNamespace(p *kibashipv1.Project, o Observed) *outcome.Problem {
	ns := o.Namespace
	if ns == nil || namespaceOwner(p).Owns(ns) {
		return nil
	}
	if id := ns.Labels[kibashipv1.LabelUUID]; id != "" && id != p.Labels[kibashipv1.LabelUUID] {
		return blocked(kibashipv1.ConditionNamespaceReady, kibashipv1.ReasonNamespaceConflict,
			"namespace %s exists and belongs to the Project with uuid %s. It is left untouched, also when this Project is deleted. Delete the namespace, or delete this Project", ns.Name, id)
	}
	if labelledOwner(p).Owns(ns) {
		return blocked(kibashipv1.ConditionNamespaceReady, kibashipv1.ReasonNamespaceConflict,
			"namespace %s carries the label and the UID of this Project, but the operator did not create it for this Project: another user did, or the status was lost. It is left untouched, also when this Project is deleted. Delete the namespace, or delete this Project. "+
				"If all in it belongs to this Project, let an administrator set status.namespaceUID of this Project to the UID of the namespace (%s)", ns.Name, ns.UID)
	}
	return blocked(kibashipv1.ConditionNamespaceReady, kibashipv1.ReasonNamespaceConflict,
		"namespace %s exists and does not carry the UID of this Project. It is left untouched, also when this Project is deleted. Delete the namespace, or delete this Project. If all in it belongs to this Project, label it %s=%s and annotate it %s=%s; if the operator did not create it, an administrator must also set status.namespaceUID of this Project to the UID of the namespace (%s)",
		ns.Name, kibashipv1.LabelUUID, p.Labels[kibashipv1.LabelUUID], kibashipv1.AnnotationProjectUID, p.UID, ns.UID)
}

// checkAdmin decides whether the operator can give itself rights in the namespace.
func checkAdmin(o Observed, name string) *outcome.Problem {
	if o.Admin != nil {
		return nil
	}
	return blocked(kibashipv1.ConditionAccessReady, kibashipv1.ReasonAdminRoleMissing,
		"ClusterRole %s does not exist. The operator needs it to work in namespaces of Projects: have an administrator create it, see the documentation of Projects", name)
}

// checkPolicies lets the operator grant rights only while admission policies limit their use. there: the rights are granted
// already, and stay.
func checkPolicies(condition string, o Observed, there bool) *outcome.Problem {
	if o.MissingPolicy == "" || there {
		return nil
	}
	return blocked(condition, kibashipv1.ReasonAdmissionPolicyMissing, "%s", o.MissingPolicy)
}

// checkTekton decides whether the Project must wait for Tekton.
func checkTekton(o Observed, mode config.TektonMode) *outcome.Problem {
	if o.Tekton || mode != config.TektonRequired {
		return nil
	}
	return blocked(kibashipv1.ConditionTektonIntegrated, kibashipv1.ReasonTektonNotInstalled,
		"Tekton is not installed (namespace %s and definition %s), and TEKTON_MODE is required: install it, or set TEKTON_MODE", naming.TektonNamespace, tasksDefinition)
}

// newProblem returns the problem for a failed write; nil for no error. notOwned is the reason where an object belongs to
// another owner.
func newProblem(condition, notOwned string, err error) *outcome.Problem {
	p := outcome.NewProblem(condition, err)
	switch {
	case p == nil:
	case p.Reason == outcome.ReasonOwnershipConflict:
		p.Reason = notOwned
	case p.Reason == outcome.ReasonAPINotInstalled:
		p.Reason = kibashipv1.ReasonWriteFailed
	}
	return p
}
