package network

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// maxContainers is how many containers a status names.
const maxContainers = 1000

// computeStatus writes the status of a live network.
func computeStatus(n *tunnelv1.ContainerNetwork, o Observed, problems outcome.Problems, now time.Time) reconcile.Ready {
	p := problems.First()
	s := &n.Status
	s.NetworkName = NamespaceName(n.Spec, n.Name, n.UID)
	s.Driver = tunnelv1.Driver
	s.IPv6 = n.Spec.IPv6
	s.State, s.Message = computeState(s.State, o, p)
	s.Subnets, s.Gateways = nil, nil
	if o.Counted || s.State != tunnelv1.NetworkRunning {
		s.ContainerIDs = nil
	}
	if o.Ours {
		// From now on the recorded UID identifies the namespace. The digest is dropped, because users who
		// can read the namespace can read its token.
		s.ID, s.NamespaceTokenHash = string(o.Namespace.UID), ""
	}
	if s.State == tunnelv1.NetworkRunning {
		s.ID = string(o.Namespace.UID)
		s.Subnets, s.Gateways = o.Subnets, gateways(o.Subnets)
		if o.Counted {
			s.ContainerIDs = o.Containers[:min(len(o.Containers), maxContainers)]
		}
	}
	set := conditions.NewSetter(n, &s.Conditions, now)
	setNamespaceReady(set, o, p)
	setConfined(set, o, p)
	return reconcile.ReadyUnless(p, tunnelv1.ReasonNetworkReady, s.Message)
}

// computeState does not go back from Running, except to Removed, which is final.
func computeState(before tunnelv1.ContainerNetworkState, o Observed, p *outcome.Problem) (state tunnelv1.ContainerNetworkState, message string) {
	if p == nil {
		return tunnelv1.NetworkRunning, fmt.Sprintf("Containers can run in namespace %s", o.Namespace.Name)
	}
	state = tunnelv1.NetworkPending
	switch {
	case p.Reason == tunnelv1.ReasonNamespaceRemoved:
		return tunnelv1.NetworkRemoved, conditions.Bound(p.Message)
	case before == tunnelv1.NetworkRunning:
		state = tunnelv1.NetworkRunning // its containers keep running; the conditions report the problem
	case p.Reason == tunnelv1.ReasonNamespaceNotFound:
		state = tunnelv1.NetworkNotFound
	case p.Class.NeedsAction():
		state = tunnelv1.NetworkFailedToStart
	}
	return state, conditions.Bound(p.Message)
}

// setNamespaceReady is True also while a later step has a problem.
func setNamespaceReady(set conditions.Setter, o Observed, p *outcome.Problem) {
	const this = tunnelv1.ConditionNamespaceReady
	switch {
	case p != nil && p.Condition == this:
		set(this, metav1.ConditionFalse, p.Reason, p.Message)
	case o.Namespace == nil:
		set(this, metav1.ConditionUnknown, tunnelv1.ReasonWaiting, "Waiting for "+p.Condition)
	default:
		set(this, metav1.ConditionTrue, tunnelv1.ReasonNetworkReady, "The namespace exists")
	}
}

// setConfined says also of a namespace of others what confines it.
func setConfined(set conditions.Setter, o Observed, p *outcome.Problem) {
	const this = tunnelv1.ConditionConfined
	switch {
	case p != nil && p.Condition == this:
		set(this, metav1.ConditionFalse, p.Reason, p.Message)
	case p != nil:
		set(this, metav1.ConditionUnknown, tunnelv1.ReasonWaiting, "Waiting for "+p.Condition)
	case !o.Ours:
		set(this, metav1.ConditionTrue, tunnelv1.ReasonConfined,
			"The operator has its rights in the namespace. The namespace was not made for this network, so only its own policies confine the containers")
	default:
		set(this, metav1.ConditionTrue, tunnelv1.ReasonConfined, "Containers reach each other and the name servers, and nothing else")
	}
}

// computeTerminating writes the status of a network that is being deleted. reason and message say why the
// deletion waits.
func computeTerminating(n *tunnelv1.ContainerNetwork, reason, message string, now time.Time) {
	s := &n.Status
	s.ObservedGeneration = n.Generation
	s.Message = conditions.Bound(message)
	set := conditions.NewSetter(n, &s.Conditions, now)
	set(tunnelv1.ConditionNamespaceReady, metav1.ConditionFalse, reason, message)
	set(tunnelv1.ConditionConfined, metav1.ConditionUnknown, tunnelv1.ReasonTerminating, "The ContainerNetwork is being deleted")
	reconcile.NotReady(reason, message).SetOn(&s.Conditions, n.Generation, now)
}
