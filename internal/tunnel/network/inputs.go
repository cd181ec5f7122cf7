package network

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/kit/naming"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

// Role is the ClusterRole that the operator binds to itself in the namespace of each network. It is in config/tunnel.
const Role = "berg-operator-tunnel-network"

// OwnershipLabels are on all objects of a network.
var OwnershipLabels = ownership.Labels{
	Domain: tunnelv1.GroupVersion.Group,
	Owner:  "container-network",
	Found:  map[string]string{tunnelv1.LabelManagedBy: tunnelv1.ManagedBy},
}

// ownerFor is the owner of what is in the namespace of a network.
func ownerFor(n *tunnelv1.ContainerNetwork) ownership.Owner { return OwnershipLabels.For(n.UID, nil) }

// namespaceOwner requires a Token, too: others can create a namespace of that name first and copy its labels and annotations, and the
// Secrets of proxies would get into it. A network without a token owns no namespace.
func namespaceOwner(n *tunnelv1.ContainerNetwork) ownership.Owner {
	s, owner := &n.Status, ownerFor(n)
	if s.ID == "" && s.NamespaceTokenHash == "" {
		return ownership.Owner{}
	}
	owner.Token = &ownership.Token{UID: types.UID(s.ID), Digest: s.NamespaceTokenHash}
	return owner
}

// Inputs is all that a Plan depends on.
type Inputs struct {
	UID  types.UID
	Name string
	Spec tunnelv1.ContainerNetworkSpec
	// Made: the operator made the namespace for this network, or makes it.
	Made bool
	// Operator is the account that is bound in the namespace.
	Operator rbacv1.Subject
	// Closed are the control and data ports of client proxies.
	Closed []int32
}

func (r *Reconciler) inputs(n *tunnelv1.ContainerNetwork, o *Observed, operator rbacv1.Subject) Inputs {
	return Inputs{
		UID: n.UID, Name: n.Name, Spec: n.Spec,
		Made:     made(n.Spec, o),
		Operator: operator,
		Closed:   append([]int32{r.Config.ControlPort, r.Config.DataPort}, o.ControlPorts...),
	}
}

// maxPrefix leaves space for the hash in the name of a namespace.
const maxPrefix = naming.MaxLabelValue - 11

// NamespaceName returns the namespace of a network: the one in its spec, or one that is made of its name and UID, so that
// a later network of that name gets another.
func NamespaceName(spec tunnelv1.ContainerNetworkSpec, name string, uid types.UID) string {
	if spec.NetworkName != "" {
		return spec.NetworkName
	}
	return naming.Within(strings.ReplaceAll(name, ".", "-"), maxPrefix) + "-" + short(uid)
}

// short returns 40 bits of a UID's hash.
func short(uid types.UID) string {
	sum := sha256.Sum256([]byte(uid))
	return hex.EncodeToString(sum[:5])
}

func ownerReferences(in Inputs) []metav1.OwnerReference {
	return []metav1.OwnerReference{{
		APIVersion:         tunnelv1.GroupVersion.String(),
		Kind:               "ContainerNetwork",
		Name:               in.Name,
		UID:                in.UID,
		Controller:         ptr.To(true),
		BlockOwnerDeletion: ptr.To(true),
	}}
}

// made reports whether the operator made the namespace of a network, or makes it.
func made(spec tunnelv1.ContainerNetworkSpec, o *Observed) bool {
	return makes(spec) && (o.Namespace == nil || o.Ours)
}

// makes reports whether the mode of a network makes a namespace.
func makes(spec tunnelv1.ContainerNetworkSpec) bool {
	mode := spec.EffectiveMode()
	return mode == tunnelv1.ModeSession || mode == tunnelv1.ModePersistent
}
