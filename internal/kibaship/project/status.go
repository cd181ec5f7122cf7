package project

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kibaship/naming"
	"github.com/bergctf/berg-operator/internal/kibaship/usage"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// steps are the conditions of a live Project, in their order.
var steps = []string{
	kibashipv1.ConditionAccepted, kibashipv1.ConditionNamespaceReady, kibashipv1.ConditionAccessReady,
	kibashipv1.ConditionLimitsReady, kibashipv1.ConditionTektonIntegrated,
}

// mainProblem returns the first problem that keeps the Project from Ready; nil for none. Where Tekton is optional,
// its problems do not count.
func mainProblem(problems outcome.Problems, mode config.TektonMode) *outcome.Problem {
	for _, step := range steps {
		if p := problems.On(step); p != nil && (step != kibashipv1.ConditionTektonIntegrated || mode == config.TektonRequired) {
			return p
		}
	}
	return nil
}

// computeStatus computes the status of a live Project from observations and problems. The token's hash is cleared once the UID is
// recorded: the UID alone shows the owner from then on.
func computeStatus(p *kibashipv1.Project, state State, problems outcome.Problems, now time.Time) reconcile.Ready {
	s := &p.Status
	s.Phase, s.Message = kibashipv1.ProjectReady, "Namespace, rights and limits are in place"
	main := mainProblem(problems, state.Mode)
	if main != nil {
		s.Phase, s.Message = phaseFor(main), main.Message
	}
	owned := state.NamespaceUID != "" || state.Namespace != nil && namespaceOwner(p).Owns(state.Namespace)
	s.NamespaceName = ""
	if owned {
		s.NamespaceName = naming.Namespace(p.Name)
	}
	if state.NamespaceUID != "" {
		s.NamespaceUID, s.NamespaceTokenHash = state.NamespaceUID, ""
	}
	computeUsage(p, state, now)
	computeConditions(p, state, problems, now)
	return reconcile.ReadyUnless(main, kibashipv1.ReasonProjectReady, s.Message)
}

// computeUsage counts what the Project has and asks for. Its builds are counted when they end, by the controller of Deployments.
func computeUsage(p *kibashipv1.Project, state State, now time.Time) {
	u := &p.Status.Usage
	u.Quota = nil
	var current usage.Now
	if p.Status.NamespaceName != "" {
		current = state.Usage
		current.Asked = current.Asked.DeepCopy()
		if q := state.Quota; q != nil && len(state.Spec.Quota) > 0 && len(q.Status.Used) > 0 {
			u.Quota = q.Status.Used
			if current.Asked == nil {
				current.Asked = corev1.ResourceList{}
			}
			for name, used := range q.Status.Used {
				if !used.IsZero() {
					// The prefix keeps what the quota counts apart from what the specs ask for.
					current.Asked["quota."+name] = used
				}
			}
		}
	}
	usage.Update(u, current, now)
}

// phaseFor: a problem that passes by itself is pending; any other needs a person.
func phaseFor(p *outcome.Problem) kibashipv1.ProjectPhase {
	if p.Class == outcome.Waiting || p.Class == outcome.Retry {
		return kibashipv1.ProjectPending
	}
	return kibashipv1.ProjectFailed
}

var successConditions = map[string]struct{ reason, message string }{
	kibashipv1.ConditionAccepted:         {kibashipv1.ReasonAccepted, "Name, labels and spec are valid"},
	kibashipv1.ConditionNamespaceReady:   {kibashipv1.ReasonCreated, "The namespace is in place"},
	kibashipv1.ConditionAccessReady:      {kibashipv1.ReasonCreated, "ServiceAccount, Role and RoleBindings are in place"},
	kibashipv1.ConditionLimitsReady:      {kibashipv1.ReasonCreated, "Quota, limits and network policy are as the spec says"},
	kibashipv1.ConditionTektonIntegrated: {kibashipv1.ReasonCreated, "The ServiceAccount may read the Tasks of Tekton"},
}

// computeConditions makes only the steps behind the first problem wait. The steps before it are in place.
func computeConditions(p *kibashipv1.Project, state State, problems outcome.Problems, now time.Time) {
	set := conditions.NewSetter(p, &p.Status.Conditions, now)
	var first *outcome.Problem
	for _, step := range steps {
		problem := problems.On(step)
		switch {
		case problem != nil:
			set(step, metav1.ConditionFalse, problem.Reason, problem.Message)
		case first != nil:
			set(step, metav1.ConditionUnknown, kibashipv1.ReasonWaiting, "Waits for "+first.Condition)
		case step == kibashipv1.ConditionTektonIntegrated && state.Mode == config.TektonOff:
			set(step, metav1.ConditionFalse, kibashipv1.ReasonTektonOff, "TEKTON_MODE is off: the operator ignores Tekton")
		case step == kibashipv1.ConditionTektonIntegrated && !state.Tekton:
			set(step, metav1.ConditionFalse, kibashipv1.ReasonTektonNotInstalled,
				"Tekton is not installed; the operator completes this when the namespace "+naming.TektonNamespace+" and Tekton's CRDs exist")
		case step == kibashipv1.ConditionAccessReady && len(state.ExtraRefused) > 0:
			set(step, metav1.ConditionTrue, successConditions[step].reason, fmt.Sprintf("%s, without the rules of these ClusterRoles, which let accounts change their bounds or their rights: %s. Remove those rules, or the label %s",
				successConditions[step].message, strings.Join(state.ExtraRefused, ", "), kibashipv1.LabelAggregate))
		default:
			set(step, metav1.ConditionTrue, successConditions[step].reason, successConditions[step].message)
		}
		if first == nil {
			first = problem
		}
	}
}

// bound cuts the message of the status, which is no condition, to the allowed length.
func bound(p *kibashipv1.Project) { p.Status.Message = conditions.Bound(p.Status.Message) }
