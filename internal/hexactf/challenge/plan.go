package challenge

import (
	"net/netip"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

// Plan is every object that a challenge consists of.
type Plan struct {
	// NetworkPolicies are none where the challenge is not isolated.
	NetworkPolicies []*networkingv1.NetworkPolicy
	Services        []*corev1.Service
	Deployments     []*appsv1.Deployment
}

// egress returns the allowed egress of the challenge, and the address ranges that it may never reach.
func (in Inputs) egress() (config.Egress, []netip.Prefix) {
	if in.Snapshot.Egress == "" {
		return in.Config.Egress, in.Config.PodCIDRs
	}
	return in.Snapshot.Egress, in.Snapshot.PodCIDRs
}

// objects are all objects of a plan.
func (p Plan) objects() []client.Object {
	var all []client.Object
	for _, o := range p.NetworkPolicies {
		all = append(all, o)
	}
	for _, o := range p.Services {
		all = append(all, o)
	}
	for _, o := range p.Deployments {
		all = append(all, o)
	}
	return all
}

func plan(in Inputs) Plan {
	var p Plan
	if in.Snapshot.Isolated {
		p.NetworkPolicies = networkPolicies(in)
	}
	exposed := exposedComponent(in.Snapshot.Components)
	for i, component := range in.Snapshot.Components {
		if component.Service != nil {
			var published int32
			if i == exposed {
				published = in.Endpoint
			}
			p.Services = append(p.Services, service(in, component, published))
		}
		p.Deployments = append(p.Deployments, deployment(in, component))
	}
	return p
}

// exposedComponent returns the index of the component at which players reach the challenge, -1 if there is none. If
// there are several, the last one counts, as with the previous operator.
func exposedComponent(components []hexactfv1.Component) int {
	exposed := -1
	for i, component := range components {
		if component.Service != nil && component.Service.Spec.Type == corev1.ServiceTypeNodePort {
			exposed = i
		}
	}
	return exposed
}

// OwnershipLabels are the labels of every object that belongs to a challenge.
var OwnershipLabels = ownership.Labels{
	Domain: hexactfv1.GroupVersion.Group,
	Owner:  "challenge",
	Found:  map[string]string{hexactfv1.LabelManagedBy: hexactfv1.ManagedBy},
}

func ownerFor(c *hexactfv1.Challenge) ownership.Owner { return OwnershipLabels.For(c.UID, nil) }

const (
	deploymentSuffix, serviceSuffix, ingressSuffix = "-deploy", "-svc", "-ingress"
	policySuffix                                   = "-policy"
	// maxPrefix leaves space for the suffix with the most characters: the names of both objects are
	// also label values.
	maxPrefix = naming.MaxLabelValue - len(deploymentSuffix)
	// maxName is the maximum length of the name of a NetworkPolicy.
	maxName = 253
)

// prefix returns the beginning of the names of a component's objects. If it is too long it is cut and ends in a hash. For
// a component in Apart it always ends in a hash, which depends on where the name of the component ends: component
// db-admin of user bob, and component db of user admin-bob, are different.
func (in Inputs) prefix(component string) string {
	name := "chall-" + in.Identity.ChallengeID + "-" + component + "-" + in.Identity.User
	if slices.Contains(in.Snapshot.Apart, component) {
		return naming.Hashed(name, component, maxPrefix)
	}
	return naming.Within(name, maxPrefix)
}

// namedApart are the components whose names continue the name of another component by a dash: with the names of two
// players, their objects could have the same names.
func namedApart(components []hexactfv1.Component) []string {
	var apart []string
	for _, c := range components {
		if slices.ContainsFunc(components, func(other hexactfv1.Component) bool { return strings.HasPrefix(c.Name, other.Name+"-") }) {
			apart = append(apart, c.Name)
		}
	}
	return apart
}

// partOfLabel is the value of the label that all objects of a challenge have.
func partOfLabel(challenge string) string { return naming.LabelValue(challenge) }

// labels returns the labels of a component's objects and of its pods.
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

// meta is the metadata of an object of the challenge. The garbage collector deletes the object with the challenge.
func (in Inputs) meta(name string, labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name:      name,
		Namespace: in.Name.Namespace,
		Labels:    labels,
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion:         hexactfv1.GroupVersion.String(),
			Kind:               "Challenge",
			Name:               in.Name.Name,
			UID:                in.UID,
			Controller:         ptr.To(true),
			BlockOwnerDeletion: ptr.To(true),
		}},
	}
}
