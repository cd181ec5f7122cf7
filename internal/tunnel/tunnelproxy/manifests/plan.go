package manifests

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/tunnel/pairobjects"
)

// Inputs is all that the objects of a pair depend on.
type Inputs struct {
	UID     types.UID
	Name    string
	Aliases []string
	// Namespace is the network's namespace, OperatorNamespace is the operator's.
	Namespace, OperatorNamespace string
	Image                        string
	// Architecture is the architecture that the image was built for, as Go names it; "" if it is unknown.
	Architecture string
	// Host is the node that the servers are on; "" before it is known.
	Host string
	// Nodes are the addresses from which the client proxy may be controlled.
	Nodes []netip.Addr
	// Ports are the ports at which the client proxy accepts connections of clients, sorted.
	Ports []int32
	// HostPorts are on the node's loopback; zero where they are not used.
	HostPorts HostPorts
	// Client is where the server proxy finds the client proxy.
	Client Endpoint
	// OwnImage: Image is the image that the operator itself runs, whose entrypoint is another program.
	OwnImage bool
	// PullSecret: nodes need a Secret to pull the image.
	PullSecret bool
	Config     config.Tunnel
}

// HostPorts are two ports of a node.
type HostPorts struct{ Control, Data int32 }

// Endpoint is where a client proxy is controlled.
type Endpoint struct {
	Address       string
	Control, Data int32
}

// Plan holds the objects of a pair in its network, except pods and Secrets.
type Plan struct {
	Policy   *networkingv1.NetworkPolicy
	Services []*corev1.Service
}

// New returns the Plan of a pair.
func New(in Inputs) Plan {
	p := Plan{Policy: policy(in), Services: []*corev1.Service{service(in, in.Name)}}
	for _, alias := range in.Aliases {
		if alias != in.Name {
			p.Services = append(p.Services, service(in, alias))
		}
	}
	if in.Config.Publish == config.PublishNodePort {
		p.Services = append(p.Services, publisher(in))
	}
	return p
}

func (in Inputs) object(part string) string { return pairobjects.Name(in.Name, part, in.UID) }

// meta is the metadata of an object of the pair, which the garbage collector deletes with it.
func (in Inputs) meta(namespace, name, role string) metav1.ObjectMeta {
	return NewObjectMeta(in.UID, in.Name, namespace, name, role)
}

// NewObjectMeta returns the metadata of an object of a pair. role is "" for all but pods.
func NewObjectMeta(uid types.UID, owner, namespace, name, role string) metav1.ObjectMeta {
	labels := map[string]string{tunnelv1.LabelProxy: string(uid)}
	if role != "" {
		labels[tunnelv1.LabelRole] = role
	}
	return metav1.ObjectMeta{
		Namespace: namespace,
		Name:      name,
		Labels:    labels,
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion:         tunnelv1.GroupVersion.String(),
			Kind:               "ContainerNetworkTunnelProxy",
			Name:               owner,
			UID:                uid,
			Controller:         ptr.To(true),
			BlockOwnerDeletion: ptr.To(true),
		}},
	}
}

// OwnerName returns the name of the pair that an object belongs to, by its owner reference.
func OwnerName(o client.Object) (name string, ok bool) {
	for _, owner := range o.GetOwnerReferences() {
		if owner.Kind == "ContainerNetworkTunnelProxy" && strings.HasPrefix(owner.APIVersion, tunnelv1.GroupVersion.Group+"/") {
			return owner.Name, true
		}
	}
	return "", false
}

// selector finds the pod of the client proxy.
func (in Inputs) selector() map[string]string {
	return map[string]string{tunnelv1.LabelProxy: string(in.UID), tunnelv1.LabelRole: tunnelv1.RoleClient}
}

// ReadyPorts returns the ports at which tunnels are ready, sorted, each once.
func ReadyPorts(tunnels []tunnelv1.TunnelStatus) []int32 {
	var ports []int32
	for _, t := range tunnels {
		if t.State == tunnelv1.TunnelReady && t.ClientProxyPort != 0 {
			ports = append(ports, t.ClientProxyPort)
		}
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}
