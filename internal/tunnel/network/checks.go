package network

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// makes reports whether the mode of a network makes a namespace.
func makes(spec tunnelv1.ContainerNetworkSpec) bool {
	mode := spec.ModeOf()
	return mode == tunnelv1.ModeSession || mode == tunnelv1.ModePersistent
}

// check returns what keeps a network from running before anything is written; nil for nothing.
func check(o Observed) *outcome.Problem {
	n, name := o.Network, NamespaceName(o.Network.Spec, o.Network.Name, o.Network.UID)
	blocked := func(reason, message string) *outcome.Problem {
		return &outcome.Problem{Condition: tunnelv1.ConditionNamespaceReady, Reason: reason, Class: outcome.Blocked, Message: message}
	}
	switch {
	case removed(o):
		return blocked(tunnelv1.ReasonNamespaceRemoved,
			fmt.Sprintf("Namespace %s was deleted, and the containers in it: delete this ContainerNetwork and create another one", name))
	case o.Namespace != nil && o.Namespace.DeletionTimestamp != nil:
		p := blocked(tunnelv1.ReasonNamespaceTerminating, fmt.Sprintf("Namespace %s is being deleted: wait until it is gone, or find out what keeps it", name))
		p.Class = outcome.Waiting
		return p
	case o.Namespace == nil && !makes(n.Spec):
		return blocked(tunnelv1.ReasonNamespaceNotFound,
			fmt.Sprintf("There is no namespace %s, and mode %s makes none: create it, or use mode session or persistent", name, n.Spec.ModeOf()))
	case o.Namespace != nil && !o.Ours && n.Spec.ModeOf() == tunnelv1.ModeSession:
		return blocked(tunnelv1.ReasonNamespaceTaken,
			fmt.Sprintf("Namespace %s was not made for this ContainerNetwork and is left untouched: name another one, or use mode existing", name))
	}
	return nil
}

// removed reports whether the namespace that a network was is gone. Another one of that name
// is another network.
func removed(o Observed) bool {
	id := o.Network.Status.ID
	return id != "" && (o.Namespace == nil || string(o.Namespace.UID) != id)
}

// problemOf turns what stopped a write into a problem.
func problemOf(on string, err error) *outcome.Problem {
	p := &outcome.Problem{Condition: on, Message: err.Error(), Err: err}
	switch outcome.CauseOf(err) {
	case outcome.NotOwned:
		p.Class, p.Reason = outcome.External, tunnelv1.ReasonOwnershipConflict
	case outcome.Conflict:
		p.Class = outcome.Stale
	case outcome.Terminating:
		p.Class, p.Reason, p.Err = outcome.Waiting, tunnelv1.ReasonNamespaceTerminating, nil
	case outcome.Contested:
		p.Class, p.Reason = outcome.Retry, tunnelv1.ReasonContested
	case outcome.Rejected, outcome.NotInstalled, outcome.NotServed:
		p.Class, p.Reason = outcome.External, tunnelv1.ReasonRefused
	case outcome.Failed:
		p.Class, p.Reason = outcome.Retry, tunnelv1.ReasonWriteFailed
	}
	if on == tunnelv1.ConditionConfined && apierrors.IsForbidden(err) {
		// API servers learn of a binding a moment later.
		p.Class, p.Reason = outcome.Retry, tunnelv1.ReasonWaiting
		p.Message = "The operator may not work in the namespace yet, which is tried again: " + err.Error()
	}
	return p
}
