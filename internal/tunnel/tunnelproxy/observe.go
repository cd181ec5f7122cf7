package tunnelproxy

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/apply"
)

// Observed is everything that decides what happens to a pair.
type Observed struct {
	Proxy *tunnelv1.ContainerNetworkTunnelProxy
	// Network is nil where there is none.
	Network *tunnelv1.ContainerNetwork
	// HostName is the node that was named as the host, "" if none was; Host is the node that
	// is the host, nil if it does not exist, or is not known yet.
	HostName string
	Host     *corev1.Node
	// Client is the pod of the client proxy; nil where there is none.
	Client *corev1.Pod
	// Published are the ports of nodes at which the client proxy is reached; zero before.
	Published HostPorts
	Server    Server
}

func (r *Reconciler) observe(ctx context.Context, p *tunnelv1.ContainerNetworkTunnelProxy) (o Observed, err error) {
	o.Proxy = p
	n := &tunnelv1.ContainerNetwork{}
	switch err := r.Client.Get(ctx, client.ObjectKey{Name: p.Spec.ContainerNetworkName}, n); {
	case err == nil:
		o.Network = n
	case !apply.Absent(err):
		return o, err
	}
	if err := r.observeClient(ctx, &o); err != nil {
		return o, err
	}
	if o.Server, err = r.backendOf(p).observe(ctx, p); err != nil {
		return o, err
	}
	return o, r.observeHost(ctx, &o)
}

// observeClient finds the pod of the client proxy wherever it is: its network may be gone.
func (r *Reconciler) observeClient(ctx context.Context, o *Observed) error {
	p := o.Proxy
	var pods corev1.PodList
	if err := r.Client.List(ctx, &pods, client.MatchingLabels{
		tunnelv1.LabelProxy: string(p.UID), tunnelv1.LabelRole: tunnelv1.RoleClient,
	}); err != nil {
		return err
	}
	name := objectName(p.Name, partClient, p.UID)
	if at := slices.IndexFunc(pods.Items, func(pod corev1.Pod) bool { return pod.Name == name && ownerOf(p).Owns(&pod) }); at >= 0 {
		o.Client = &pods.Items[at]
	}
	if o.Client == nil {
		return nil
	}
	switch settingsOf(r.Config, *o).Publish {
	case config.PublishHostPort:
		o.Published = hostPortsOf(o.Client)
	case config.PublishNodePort:
		s := &corev1.Service{}
		err := r.Client.Get(ctx, client.ObjectKey{Namespace: o.Client.Namespace, Name: name}, s)
		if err != nil || !ownerOf(p).Owns(s) {
			return apply.IgnoreAbsent(err)
		}
		for _, port := range s.Spec.Ports {
			switch port.Name {
			case "control":
				o.Published.Control = port.NodePort
			case "data":
				o.Published.Data = port.NodePort
			}
		}
	}
	return nil
}

func hostPortsOf(pod *corev1.Pod) (ports HostPorts) {
	for _, c := range pod.Spec.Containers {
		for _, port := range c.Ports {
			switch port.Name {
			case "control":
				ports.Control = port.HostPort
			case "data":
				ports.Data = port.HostPort
			}
		}
	}
	return ports
}

// observeHost finds the node that is the host.
func (r *Reconciler) observeHost(ctx context.Context, o *Observed) error {
	o.HostName = o.Proxy.Annotations[tunnelv1.AnnotationHostNode]
	if o.HostName == "" {
		o.HostName = r.Config.HostNode
	}
	name := o.HostName
	if name == "" && o.Client != nil {
		name = o.Client.Spec.NodeName
	}
	if name == "" {
		return nil
	}
	node := &corev1.Node{}
	err := r.Client.Get(ctx, client.ObjectKey{Name: name}, node)
	if err == nil {
		o.Host = node
	}
	return apply.IgnoreAbsent(err)
}

// networkRuns reports whether the network of a pair can be used.
func networkRuns(n *tunnelv1.ContainerNetwork) bool {
	if n == nil || n.DeletionTimestamp != nil || n.Status.State != tunnelv1.NetworkRunning || n.Status.ID == "" {
		return false
	}
	// Beside the namespace, the operator must be allowed to work in it.
	return meta.IsStatusConditionTrue(n.Status.Conditions, tunnelv1.ConditionConfined)
}

func nodeReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// TrimNode keeps of a node what networks and pairs are judged by: its status is written often.
func TrimNode(n *corev1.Node) {
	status := corev1.NodeStatus{Addresses: n.Status.Addresses, DaemonEndpoints: n.Status.DaemonEndpoints}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			status.Conditions = []corev1.NodeCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	n.Status = status
	n.Spec = corev1.NodeSpec{PodCIDR: n.Spec.PodCIDR, PodCIDRs: n.Spec.PodCIDRs}
	n.Annotations, n.Labels, n.ManagedFields = nil, nil, nil
}
