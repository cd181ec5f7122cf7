package network

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/kit/naming"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

// Role is the ClusterRole that the operator binds to itself in the namespace of each network:
// config/tunnel has it.
const Role = "berg-operator-tunnel-network"

// OwnershipLabels are those of all that belongs to a network.
var OwnershipLabels = ownership.Labels{
	Domain: tunnelv1.GroupVersion.Group,
	Owner:  "container-network",
	Found:  map[string]string{tunnelv1.LabelManagedBy: tunnelv1.ManagedBy},
}

func ownerOf(n *tunnelv1.ContainerNetwork) ownership.Owner { return OwnershipLabels.For(n.UID, nil) }

// Inputs is all that a plan depends on.
type Inputs struct {
	UID  types.UID
	Name string
	Spec tunnelv1.ContainerNetworkSpec
	// Made: the namespace is one that was made for this network, or is to be.
	Made bool
	// Operator is who is bound in the namespace.
	Operator rbacv1.Subject
	// Closed are the ports by which client proxies are controlled.
	Closed []int32
}

// Plan is every object that a network consists of.
type Plan struct {
	// Namespace is nil where the network uses one that it does not make.
	Namespace *corev1.Namespace
	// Policy is nil there too.
	Policy  *networkingv1.NetworkPolicy
	Binding *rbacv1.RoleBinding
}

func plan(in Inputs) Plan {
	p := Plan{Binding: binding(in)}
	if in.Made {
		p.Namespace = namespace(in)
		p.Policy = policy(in)
	}
	return p
}

// maxPrefix leaves room for the hash in the name of a namespace.
const maxPrefix = naming.MaxLabelValue - 11

// NamespaceName returns the namespace that a network is: the one that its spec names, or one
// that is made of its own name and its UID, so that another network of that name has another.
func NamespaceName(spec tunnelv1.ContainerNetworkSpec, name string, uid types.UID) string {
	if spec.NetworkName != "" {
		return spec.NetworkName
	}
	return naming.Within(strings.ReplaceAll(name, ".", "-"), maxPrefix) + "-" + short(uid)
}

// short is 40 bits of a UID's hash: names of the same object agree, those of others do not.
func short(uid types.UID) string {
	sum := sha256.Sum256([]byte(uid))
	return hex.EncodeToString(sum[:5])
}

func owner(in Inputs) []metav1.OwnerReference {
	return []metav1.OwnerReference{{
		APIVersion:         tunnelv1.GroupVersion.String(),
		Kind:               "ContainerNetwork",
		Name:               in.Name,
		UID:                in.UID,
		Controller:         ptr.To(true),
		BlockOwnerDeletion: ptr.To(true),
	}}
}
