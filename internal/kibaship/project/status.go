package project

import (
	"errors"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kibaship/naming"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// steps are the conditions of a Project that is made, in their order.
var steps = []string{
	kibashipv1.ConditionAccepted, kibashipv1.ConditionNamespaceReady, kibashipv1.ConditionAccessReady,
	kibashipv1.ConditionLimitsReady, kibashipv1.ConditionTektonIntegrated,
}

// Outcome is what one pass saw and did, and all that a status is derived from.
type Outcome struct {
	Observed Observed
	Mode     config.TektonMode
	// NamespaceCreated: this pass made it.
	NamespaceCreated bool

	problems map[string]*outcome.Problem
}

// add notes a problem, which may be nil. The first one of a condition counts.
func (out Outcome) add(p *outcome.Problem) {
	if p != nil && out.problems[p.Condition] == nil {
		out.problems[p.Condition] = p
	}
}

// stopped reports whether a step was stopped, so that no later one is taken.
func (out Outcome) stopped() bool { return len(out.problems) > 0 }

// problem is the one that keeps the Project from Ready; nil for none. Where Tekton is
// optional, what keeps a Project from it is no such problem.
func (out Outcome) problem() *outcome.Problem {
	for _, step := range steps {
		if p := out.problems[step]; p != nil && (step != kibashipv1.ConditionTektonIntegrated || out.Mode == config.TektonRequired) {
			return p
		}
	}
	return nil
}

// raced reports whether what was seen is out of date, so that there is nothing to tell.
func (out Outcome) raced() bool {
	return slices.ContainsFunc(steps, func(step string) bool {
		p := out.problems[step]
		return p != nil && p.Class == outcome.Stale
	})
}

// err is what must be tried again.
func (out Outcome) err() error {
	var errs []error
	for _, step := range steps {
		if p := out.problems[step]; p != nil {
			errs = append(errs, p.Err)
		}
	}
	return errors.Join(errs...)
}

// computeStatus writes into the status of a live Project what an outcome means.
func computeStatus(p *kibashipv1.Project, out Outcome, now time.Time) {
	s := &p.Status
	s.ObservedGeneration = p.Generation
	s.Phase, s.Message = kibashipv1.ProjectReady, "Namespace, rights and limits are in place"
	if problem := out.problem(); problem != nil {
		s.Phase, s.Message = phaseOf(problem), problem.Message
	}
	s.NamespaceName = ""
	if out.Observed.Namespace != nil && namespaceOwner(p).Owns(out.Observed.Namespace) || out.NamespaceCreated {
		s.NamespaceName = naming.Namespace(p.Name)
	}
	s.Usage = kibashipv1.ProjectUsage{}
	if s.NamespaceName != "" {
		s.Usage.Applications, s.Usage.Deployments = out.Observed.Applications, out.Observed.Deployments
		if q := out.Observed.Quota; q != nil && len(p.Spec.Quota) > 0 && len(q.Status.Used) > 0 {
			s.Usage.Quota = q.Status.Used
		}
	}
	computeConditions(p, out, now)
}

// phaseOf: what passes by itself is pending, the rest somebody must fix.
func phaseOf(p *outcome.Problem) kibashipv1.ProjectPhase {
	if p.Class == outcome.Waiting || p.Class == outcome.Retry {
		return kibashipv1.ProjectPending
	}
	return kibashipv1.ProjectFailed
}

var inPlace = map[string]struct{ reason, message string }{
	kibashipv1.ConditionAccepted:         {kibashipv1.ReasonAccepted, "Name, labels and spec are good"},
	kibashipv1.ConditionNamespaceReady:   {kibashipv1.ReasonCreated, "The namespace is in place"},
	kibashipv1.ConditionAccessReady:      {kibashipv1.ReasonCreated, "ServiceAccount, Role and RoleBindings are in place"},
	kibashipv1.ConditionLimitsReady:      {kibashipv1.ReasonCreated, "Quota, limits and network policy are as the spec says"},
	kibashipv1.ConditionTektonIntegrated: {kibashipv1.ReasonCreated, "The ServiceAccount may read the Tasks of Tekton"},
}

// computeConditions writes every condition of a live Project.
func computeConditions(p *kibashipv1.Project, out Outcome, now time.Time) {
	var first *outcome.Problem
	for _, step := range steps {
		problem := out.problems[step]
		switch {
		case problem != nil:
			set(p, step, metav1.ConditionFalse, problem.Reason, problem.Message, now)
		case first != nil:
			set(p, step, metav1.ConditionUnknown, kibashipv1.ReasonWaiting, "Waits for "+first.Condition, now)
		case step == kibashipv1.ConditionTektonIntegrated && out.Mode == config.TektonOff:
			set(p, step, metav1.ConditionFalse, kibashipv1.ReasonTektonOff, "TEKTON_MODE is off: Tekton is not looked at", now)
		case step == kibashipv1.ConditionTektonIntegrated && !out.Observed.Tekton:
			set(p, step, metav1.ConditionFalse, kibashipv1.ReasonTektonNotInstalled,
				"Tekton is not installed; this is completed when its namespace "+naming.TektonNamespace+" and its definitions appear", now)
		default:
			set(p, step, metav1.ConditionTrue, inPlace[step].reason, inPlace[step].message, now)
		}
		if first == nil {
			first = problem
		}
	}
	if problem := out.problem(); problem != nil {
		set(p, kibashipv1.ConditionReady, metav1.ConditionFalse, problem.Reason, problem.Message, now)
	} else {
		set(p, kibashipv1.ConditionReady, metav1.ConditionTrue, kibashipv1.ReasonProjectReady, p.Status.Message, now)
	}
}

// bound brings what a status says beside its conditions to its length.
func bound(p *kibashipv1.Project) { p.Status.Message = conditions.Bound(p.Status.Message) }

func set(p *kibashipv1.Project, conditionType string, status metav1.ConditionStatus, reason, message string, now time.Time) {
	conditions.Upsert(&p.Status.Conditions, p.Generation, now, metav1.Condition{
		Type: conditionType, Status: status, Reason: reason, Message: message,
	})
}
