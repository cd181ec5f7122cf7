package network

import (
	"fmt"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/kit/identity"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// check returns the problem that keeps a network from running before anything is written.
func check(n *tunnelv1.ContainerNetwork, o *Observed) (problems outcome.Problems) {
	name := NamespaceName(n.Spec, n.Name, n.UID)
	add := func(class outcome.Class, reason, format string, args ...any) {
		problems.Add(&outcome.Problem{Condition: tunnelv1.ConditionNamespaceReady, Reason: reason, Class: class, Message: fmt.Sprintf(format, args...)})
	}
	switch {
	case removed(n, o):
		add(outcome.Blocked, tunnelv1.ReasonNamespaceRemoved,
			"Namespace %s was deleted with all containers in it: delete this ContainerNetwork and create another one", name)
	case o.Namespace != nil && o.Namespace.DeletionTimestamp != nil:
		add(outcome.Waiting, tunnelv1.ReasonNamespaceTerminating, "Namespace %s is being deleted: wait until it is gone, or find what holds it back", name)
	case o.Namespace == nil && !makes(n.Spec):
		add(outcome.Blocked, tunnelv1.ReasonNamespaceNotFound,
			"Namespace %s does not exist, and mode %s does not create it: create it, or use mode session or persistent", name, n.Spec.EffectiveMode())
	case o.Namespace != nil && !o.Ours && n.Spec.EffectiveMode() == tunnelv1.ModeSession:
		add(outcome.Blocked, tunnelv1.ReasonNamespaceTaken,
			"Namespace %s was not made for this ContainerNetwork and is left untouched: name another one, or use mode existing", name)
	case o.MissingPolicy != "" && !o.Bound:
		problems.Add(&outcome.Problem{
			Condition: tunnelv1.ConditionConfined, Reason: tunnelv1.ReasonAdmissionPolicyMissing, Class: outcome.Blocked, Message: o.MissingPolicy,
		})
	}
	return problems
}

// removed reports whether the namespace of a network is gone. Another namespace of that name is another network.
func removed(n *tunnelv1.ContainerNetwork, o *Observed) bool {
	id := n.Status.ID
	return id != "" && (o.Namespace == nil || string(o.Namespace.UID) != id)
}

// namespaceProblem returns the problem for a failed write of the namespace.
func namespaceProblem(err error) *outcome.Problem {
	p := outcome.NewProblem(tunnelv1.ConditionNamespaceReady, err)
	if p.Class == outcome.Waiting {
		p.Reason = tunnelv1.ReasonNamespaceTerminating
	}
	return p
}

// confinedProblem returns the problem for a failed write in the namespace.
func confinedProblem(err error) *outcome.Problem {
	p := outcome.NewProblem(tunnelv1.ConditionConfined, err)
	switch {
	case p.Class == outcome.Waiting:
		p.Reason = tunnelv1.ReasonNamespaceTerminating
	case identity.LacksRight(err):
		// API servers apply a new RoleBinding with a delay, so that this happens to every network.
		p.Class, p.Reason = outcome.InProgress, tunnelv1.ReasonWaiting
		p.Message = "The operator does not have its rights in the namespace yet; retrying: " + err.Error()
	}
	return p
}
