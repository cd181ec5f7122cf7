package application

import (
	"fmt"
	"strings"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kibaship/rules"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// check returns what keeps an Application from Ready, the first of each condition: the same
// rules as those of its webhook, and what no webhook can know.
func check(a *kibashipv1.Application, o Observed) map[string]*outcome.Problem {
	problems := map[string]*outcome.Problem{}
	add := func(condition, reason string, class outcome.Class, format string, args ...any) {
		if problems[condition] == nil {
			problems[condition] = &outcome.Problem{Condition: condition, Reason: reason, Class: class, Message: fmt.Sprintf(format, args...)}
		}
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
		add(kibashipv1.ConditionProjectFound, kibashipv1.ReasonProjectNotReady, outcome.Waiting, "Project %s is not Ready: its status tells why", name)
	}
	if o.Project != nil {
		violations = append(violations, rules.Allowed(&a.Spec, &o.Project.Spec)...)
	}
	var told []string
	reason := ""
	for _, v := range violations {
		if v.Reason != kibashipv1.ReasonWrongNamespace {
			told = append(told, v.String())
			if reason == "" {
				reason = v.Reason
			}
		}
	}
	if reason != "" {
		add(kibashipv1.ConditionSpecAccepted, reason, outcome.Blocked, "%s", strings.Join(told, "; "))
	}
	needed := rules.Secrets(&a.Spec)
	if len(o.Missing) > 0 {
		texts := make([]string, len(o.Missing))
		for i, name := range o.Missing {
			texts[i] = fmt.Sprintf("Secret %s (%s)", name, needed[name])
		}
		add(kibashipv1.ConditionSecretFound, kibashipv1.ReasonSecretNotFound, outcome.Waiting,
			"%s not found in namespace %s: create what is missing, and the Application continues", strings.Join(texts, ", "), a.Namespace)
	}
	return problems
}
