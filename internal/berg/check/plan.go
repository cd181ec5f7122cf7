package check

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

// Inputs is all that the plan of a solver depends on: no clock, no randomness, no cluster.
type Inputs struct {
	Check     *bergv1.ChallengeCheck
	Challenge *bergv1.Challenge
	// Instance is Running: its status has the addresses for players.
	Instance *bergv1.ChallengeInstance
	Way      address
	// Config has the kinds of network policy that instances are given now.
	Config config.Berg
}

// OwnershipLabels are the labels of every object that belongs to a check. They find the objects of
// instances too, as they share the caches.
var OwnershipLabels = ownership.Labels{
	Domain: bergv1.GroupVersion.Group,
	Owner:  "check",
	Found:  map[string]string{bergv1.LabelManagedBy: bergv1.ManagedBy},
}

// ownerFor returns the owner of the objects of a check. It requires its UID alone, since an
// instance has no label by which it is found.
func ownerFor(c *bergv1.ChallengeCheck) ownership.Owner {
	return ownership.Owner{Annotation: OwnershipLabels.Annotation(), UID: c.UID}
}

// namespaceOwner is the check as the owner of its namespace, which others can create first. Before a check is made it
// owns none.
func namespaceOwner(c *bergv1.ChallengeCheck) ownership.Owner {
	if c.Status.Run == nil {
		return ownership.Owner{}
	}
	owner := ownerFor(c)
	owner.Token = &ownership.Token{UID: c.Status.NamespaceUID, Digest: c.Status.NamespaceTokenHash}
	return owner
}

// inInstance is the metadata of an object in the namespace of the instance, with which it goes.
func (in Inputs) inInstance(name string) metav1.ObjectMeta {
	m := meta(in.Check, name)
	m.Namespace = in.Instance.Status.Namespace
	return m
}
