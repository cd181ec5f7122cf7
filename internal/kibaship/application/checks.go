package application

import (
	"cmp"
	"fmt"
	"strings"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kibaship/rules"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// check returns the problems that keep an Application from Ready: the violations of the webhook's rules, and
// problems that depend on other objects, which no webhook can know. A Project that does not exist is waited for, as it may be
// created after its Applications.
func check(a *kibashipv1.Application, o Observed) (problems outcome.Problems) {
	add := func(condition, reason string, class outcome.Class, format string, args ...any) {
		problems.Add(&outcome.Problem{Condition: condition, Reason: reason, Class: class, Message: fmt.Sprintf(format, args...)})
	}
	violations := rules.Application(a)
	for _, v := range violations {
		if v.Reason == kibashipv1.ReasonWrongNamespace {
			add(kibashipv1.ConditionProjectFound, v.Reason, outcome.Blocked, "%s", v)
		}
	}
	name := a.Spec.ProjectRef.Name
	switch p := o.Project; {
	case p == nil:
		add(kibashipv1.ConditionProjectFound, kibashipv1.ReasonProjectNotFound, outcome.Waiting,
			"Project %s does not exist: create it, or correct spec.projectRef.name", name)
	case p.DeletionTimestamp != nil:
		add(kibashipv1.ConditionProjectFound, kibashipv1.ReasonProjectNotReady, outcome.Waiting, "Project %s is being deleted", name)
	case p.Status.Phase != kibashipv1.ProjectReady:
		add(kibashipv1.ConditionProjectFound, kibashipv1.ReasonProjectNotReady, outcome.Waiting, "Project %s is not Ready: see its status", name)
	}
	if o.Project != nil {
		violations = append(violations, rules.Allowed(&a.Spec, &o.Project.Spec)...)
	}
	var texts []string
	reason := ""
	for _, v := range violations {
		if v.Reason != kibashipv1.ReasonWrongNamespace {
			texts = append(texts, v.String())
			reason = cmp.Or(reason, v.Reason)
		}
	}
	if reason != "" {
		add(kibashipv1.ConditionSpecAccepted, reason, outcome.Blocked, "%s", strings.Join(texts, "; "))
	}
	needed := rules.Secrets(&a.Spec)
	if len(o.Missing) > 0 {
		texts := make([]string, len(o.Missing))
		for i, name := range o.Missing {
			texts[i] = fmt.Sprintf("Secret %s (%s)", name, needed[name])
		}
		add(kibashipv1.ConditionSecretFound, kibashipv1.ReasonSecretNotFound, outcome.Waiting,
			"%s not found in namespace %s: create the missing Secrets; the Application continues by itself", strings.Join(texts, ", "), a.Namespace)
	}
	return problems
}
