package status

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// MayContend reports whether a sibling is one that is to be built at all. Whether it
// contends is judged of what it asks for and not of its status, which may be of yesterday:
// two instances that become possible by the same event must agree on who goes first.
func MayContend(s *bergv1.ChallengeInstance) bool {
	return s.DeletionTimestamp == nil && s.Spec.TerminationReason == ""
}

// Holder returns to which instance a namespace belongs, nil if to none.
func Holder(ns *corev1.Namespace, instances []*bergv1.ChallengeInstance) *bergv1.ChallengeInstance {
	if ns == nil {
		return nil
	}
	for _, i := range instances {
		if manifests.OwnerOf(i).Owns(ns) {
			return i
		}
	}
	return nil
}

// Ahead returns the last of those that come before an instance and contend.
func Ahead(of *bergv1.ChallengeInstance, siblings []*bergv1.ChallengeInstance, contends func(*bergv1.ChallengeInstance) bool) *bergv1.ChallengeInstance {
	before := InOrder(siblings, func(s *bergv1.ChallengeInstance) bool { return goesFirst(s, of) })
	for _, s := range slices.Backward(before) {
		if contends(s) {
			return s
		}
	}
	return nil
}

// Behind returns the first of those that come after an instance and contend.
func Behind(of *bergv1.ChallengeInstance, siblings []*bergv1.ChallengeInstance, contends func(*bergv1.ChallengeInstance) bool) *bergv1.ChallengeInstance {
	return First(InOrder(siblings, func(s *bergv1.ChallengeInstance) bool { return goesFirst(of, s) }), contends)
}

// First returns the first of instances in their order that contends.
func First(ordered []*bergv1.ChallengeInstance, contends func(*bergv1.ChallengeInstance) bool) *bergv1.ChallengeInstance {
	if at := slices.IndexFunc(ordered, contends); at >= 0 {
		return ordered[at]
	}
	return nil
}

// InOrder returns the instances that are asked for in the order in which they are
// built.
func InOrder(instances []*bergv1.ChallengeInstance, which func(*bergv1.ChallengeInstance) bool) []*bergv1.ChallengeInstance {
	var out []*bergv1.ChallengeInstance
	for _, i := range instances {
		if which(i) {
			out = append(out, i)
		}
	}
	slices.SortFunc(out, func(a, b *bergv1.ChallengeInstance) int {
		switch {
		case a.UID == b.UID:
			return 0
		case goesFirst(a, b):
			return -1
		default:
			return 1
		}
	})
	return out
}

// goesFirst is a total order of an owner's instances, the same on every replica:
// one that was started before those that were not, then the older one.
func goesFirst(a, b *bergv1.ChallengeInstance) bool {
	if aStarted := a.Status.InstanceID != ""; aStarted != (b.Status.InstanceID != "") {
		return aStarted
	}
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.UID < b.UID
}

// ownerBusy names the instance directly before this one, and not the one that runs: so a
// change concerns only the next of hundreds that wait, and the message names what a player can
// delete to continue.
func ownerBusy(o Observed) *outcome.Problem {
	return &outcome.Problem{
		Condition: bergv1.ConditionNamespaceCreated, Reason: bergv1.ReasonOwnerBusy, Class: outcome.Waiting,
		Message: fmt.Sprintf("Waiting for instance %s of the same owner and its namespace to be deleted",
			client.ObjectKeyFromObject(cmp.Or(o.Ahead, o.Holder))),
	}
}
