package challenge

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/naming"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

// Inputs is all that a plan depends on: no clock, no randomness, no cluster.
type Inputs struct {
	UID      types.UID
	Name     types.NamespacedName
	Identity Identity
	Snapshot Snapshot
	// Endpoint is the node port in the status, where players reach the challenge; 0 if there is none.
	Endpoint int32
	Config   config.HexaCTF
}

// exposedComponent returns the index of the component at which players reach the challenge, -1 if there is none. Of
// several components the last one counts, as with the previous operator.
func exposedComponent(components []hexactfv1.Component) int {
	exposed := -1
	for i, component := range components {
		if component.Service != nil && component.Service.Spec.Type == corev1.ServiceTypeNodePort {
			exposed = i
		}
	}
	return exposed
}

// OwnershipLabels are on all objects of a challenge.
var OwnershipLabels = ownership.Labels{
	Domain: hexactfv1.GroupVersion.Group,
	Owner:  "challenge",
	Found:  map[string]string{hexactfv1.LabelManagedBy: hexactfv1.ManagedBy},
}

func ownerFor(c *hexactfv1.Challenge) ownership.Owner { return OwnershipLabels.For(c.UID, nil) }

const (
	deploymentSuffix, serviceSuffix, ingressSuffix = "-deploy", "-svc", "-ingress"
	policySuffix                                   = "-policy"
	// maxPrefix leaves space for the longest suffix: the names of both objects are also label values.
	maxPrefix = naming.MaxLabelValue - len(deploymentSuffix)
	// maxName is the maximum length of the name of a NetworkPolicy.
	maxName = 253
)

// prefix is the beginning of the names of a component's objects. Dashes in a user are at its end and leave one reading. A dash in a
// challengeId or in the name of a component does not: problem 7-web of user c, and problem 7 of user web-c, could have the same
// names. So those names, and names that are too long, end in a hash of all three. They begin differently, so that no user can be
// called what the hash makes of another one. The names are in objects of running challenges, so the rule must never change.
func (in Inputs) prefix(component string) string {
	id := in.Identity.ChallengeID
	name := id + "-" + component + "-" + in.Identity.User
	if plain := "chall-" + name; len(plain) <= maxPrefix && !strings.Contains(id+component, "-") {
		return plain
	}
	return naming.Hashed("chall--"+name, id+"/"+component, maxPrefix)
}

// partOfLabel is the value of the label that all objects of a challenge have.
func partOfLabel(challenge string) string { return naming.LabelValue(challenge) }

// labels are those of a component's objects and of its pods.
func (in Inputs) labels(component string) map[string]string {
	prefix := in.prefix(component)
	return map[string]string{
		hexactfv1.LabelInstance:   prefix,
		hexactfv1.LabelName:       component,
		hexactfv1.LabelPartOf:     partOfLabel(in.Name.Name),
		hexactfv1.LabelManagedBy:  hexactfv1.ManagedBy,
		hexactfv1.LabelDeployment: prefix + deploymentSuffix,
		hexactfv1.LabelService:    prefix + serviceSuffix,
	}
}

// selector selects the pods of a component. A Deployment does not let it change.
func (in Inputs) selector(component string) map[string]string {
	return map[string]string{hexactfv1.LabelInstance: in.prefix(component)}
}

// confining is the metadata of a network policy. It has no owner: the garbage collector would not wait for the last pod, as the
// finalizer does.
func (in Inputs) confining(name string, labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: in.Name.Namespace, Labels: labels}
}

// meta is the metadata of any other object of the challenge. The garbage collector deletes the object with the challenge.
func (in Inputs) meta(name string, labels map[string]string) metav1.ObjectMeta {
	m := in.confining(name, labels)
	m.OwnerReferences = []metav1.OwnerReference{{
		APIVersion:         hexactfv1.GroupVersion.String(),
		Kind:               "Challenge",
		Name:               in.Name.Name,
		UID:                in.UID,
		Controller:         ptr.To(true),
		BlockOwnerDeletion: ptr.To(true),
	}}
	return m
}
