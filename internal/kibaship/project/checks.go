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

// check decides whether the Project is good: the same rules as those of its webhook.
func check(p *kibashipv1.Project, o Observed) *outcome.Problem {
	all := rules.Project(p)
	if len(all) == 0 {
		all = rules.UUIDTaken(p, o.SameUUID)
	}
	if len(all) == 0 {
		return nil
	}
	return blocked(kibashipv1.ConditionAccepted, all[0].Reason, "%s", all.String())
}

// checkNamespace decides whether the namespace may be made, or is ours.
func checkNamespace(p *kibashipv1.Project, o Observed) *outcome.Problem {
	ns := o.Namespace
	if ns == nil || namespaceOwner(p).Owns(ns) {
		return nil
	}
	if id := ns.Labels[kibashipv1.LabelUUID]; id != "" && id != p.Labels[kibashipv1.LabelUUID] {
		return blocked(kibashipv1.ConditionNamespaceReady, kibashipv1.ReasonNamespaceConflict,
			"namespace %s exists and belongs to the Project of uuid %s; it was left untouched, also when this Project is deleted: delete the namespace, or delete this Project", ns.Name, id)
	}
	return blocked(kibashipv1.ConditionNamespaceReady, kibashipv1.ReasonNamespaceConflict,
		"namespace %s exists and does not carry the proof that it is this Project's; it was left untouched, also when this Project is deleted: delete it, or delete this Project, or, if all that is in it is this Project's, label it %s=%s and annotate it %s=%s",
		ns.Name, kibashipv1.LabelUUID, p.Labels[kibashipv1.LabelUUID], kibashipv1.AnnotationProjectUID, p.UID)
}

// checkAdmin decides whether the operator can give itself rights in the namespace.
func checkAdmin(o Observed, name string) *outcome.Problem {
	if o.Admin != nil {
		return nil
	}
	return blocked(kibashipv1.ConditionAccessReady, kibashipv1.ReasonAdminRoleMissing,
		"ClusterRole %s does not exist, by which the operator works in namespaces of Projects: an administrator creates it, see the documentation of Projects", name)
}

// checkTekton decides whether the Project must wait for Tekton.
func checkTekton(o Observed, mode config.TektonMode) *outcome.Problem {
	if o.Tekton || mode != config.TektonRequired {
		return nil
	}
	return blocked(kibashipv1.ConditionTektonIntegrated, kibashipv1.ReasonTektonNotInstalled,
		"Tekton is not installed (namespace %s and definition %s), and TEKTON_MODE is required: install it, or set TEKTON_MODE", naming.TektonNamespace, tasksDefinition)
}

// finalizerProblem is what a finalizer that could not be put on means; nil for none.
func finalizerProblem(err error) *outcome.Problem {
	if err == nil {
		return nil
	}
	return problemOf(kibashipv1.ConditionNamespaceReady, kibashipv1.ReasonRefused, fmt.Errorf("put a finalizer on the Project: %w", err))
}

// problemOf is what a failed write means; nil for none. notOurs is the reason of an object
// that is not ours.
func problemOf(condition, notOurs string, err error) *outcome.Problem {
	if err == nil {
		return nil
	}
	p := &outcome.Problem{Condition: condition, Reason: kibashipv1.ReasonWriteFailed, Class: outcome.Retry, Message: err.Error(), Err: err}
	switch outcome.CauseOf(err) {
	case outcome.Terminating:
		p.Class, p.Reason, p.Err = outcome.Waiting, kibashipv1.ReasonWaiting, nil
	case outcome.NotOwned:
		p.Class, p.Reason = outcome.External, notOurs
	case outcome.Rejected:
		p.Class, p.Reason = outcome.External, kibashipv1.ReasonRefused
	case outcome.NotInstalled, outcome.NotServed:
		p.Class = outcome.External
	case outcome.Conflict:
		p.Class = outcome.Stale
	case outcome.Contested:
		p.Reason = kibashipv1.ReasonContested
	case outcome.Failed:
	}
	return p
}
