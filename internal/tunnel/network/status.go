package network

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// Outcome is what one pass saw and did.
type Outcome struct {
	Observed
	// Problem is what stopped the pass; nil when every object is in place.
	Problem *outcome.Problem
}

// maxContainers is how many containers a status names.
const maxContainers = 1000

// computeStatus writes into the status of a live network what an outcome means.
func computeStatus(out Outcome, now time.Time) {
	n := out.Network
	s := &n.Status
	s.ObservedGeneration = n.Generation
	s.NetworkName = NamespaceName(n.Spec, n.Name, n.UID)
	s.Driver = tunnelv1.Driver
	s.IPv6 = n.Spec.IPv6
	s.State, s.Message = stateOf(out)
	s.Subnets, s.Gateways = nil, nil
	if out.Counted || s.State != tunnelv1.NetworkRunning {
		s.ContainerIDs = nil
	}
	if s.State == tunnelv1.NetworkRunning {
		s.ID = string(out.Namespace.UID)
		s.Subnets, s.Gateways = out.Subnets, gateways(out.Subnets)
		if out.Counted {
			s.ContainerIDs = out.Containers[:min(len(out.Containers), maxContainers)]
		}
	}
	setConditions(n, now, namespaceReady(out), confined(out))
}

func stateOf(out Outcome) (state tunnelv1.ContainerNetworkState, message string) {
	p := out.Problem
	if p == nil {
		return tunnelv1.NetworkRunning, fmt.Sprintf("Containers can be in namespace %s", out.Namespace.Name)
	}
	state = tunnelv1.NetworkPending
	switch p.Reason {
	case tunnelv1.ReasonNamespaceRemoved:
		state = tunnelv1.NetworkRemoved
	case tunnelv1.ReasonNamespaceNotFound:
		state = tunnelv1.NetworkNotFound
	default:
		if p.Class == outcome.Blocked || p.Class == outcome.External {
			state = tunnelv1.NetworkFailedToStart
		}
	}
	if state != tunnelv1.NetworkRemoved && out.Network.Status.State == tunnelv1.NetworkRunning {
		// What is there already goes on; the conditions tell what is wrong beside it.
		state = tunnelv1.NetworkRunning
	}
	return state, conditions.Bound(p.Message)
}

func condition(conditionType string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: conditionType, Status: status, Reason: reason, Message: message}
}

func namespaceReady(out Outcome) metav1.Condition {
	const this = tunnelv1.ConditionNamespaceReady
	if p := out.Problem; p != nil && p.Condition == this {
		return condition(this, metav1.ConditionFalse, p.Reason, p.Message)
	}
	return condition(this, metav1.ConditionTrue, tunnelv1.ReasonNetworkReady, "The namespace is there")
}

func confined(out Outcome) metav1.Condition {
	const this = tunnelv1.ConditionConfined
	switch p := out.Problem; {
	case p != nil && p.Condition == this:
		return condition(this, metav1.ConditionFalse, p.Reason, p.Message)
	case p != nil:
		return condition(this, metav1.ConditionUnknown, tunnelv1.ReasonWaiting, "Waits for "+p.Condition)
	case !out.Ours:
		return condition(this, metav1.ConditionTrue, tunnelv1.ReasonConfined,
			"The operator may work in the namespace, which is used as it is: what its containers reach, its own policies say")
	default:
		return condition(this, metav1.ConditionTrue, tunnelv1.ReasonConfined, "Containers reach each other and the name servers, and nobody else")
	}
}

func setConditions(n *tunnelv1.ContainerNetwork, now time.Time, wanted ...metav1.Condition) {
	conditions.Upsert(&n.Status.Conditions, n.Generation, now, wanted...)
}

// computeTerminating writes the status of a network that is being deleted. why is what it waits for.
func computeTerminating(n *tunnelv1.ContainerNetwork, reason, why string, now time.Time) {
	n.Status.ObservedGeneration = n.Generation
	n.Status.Message = conditions.Bound(why)
	setConditions(n, now,
		condition(tunnelv1.ConditionNamespaceReady, metav1.ConditionFalse, reason, why),
		condition(tunnelv1.ConditionConfined, metav1.ConditionUnknown, tunnelv1.ReasonTerminating, "The ContainerNetwork is being deleted"))
}
