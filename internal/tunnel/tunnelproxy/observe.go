package tunnelproxy

import (
	"cmp"
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/tunnel/network"
	"github.com/bergctf/berg-operator/internal/tunnel/pairobjects"
	"github.com/bergctf/berg-operator/internal/tunnel/tunnelproxy/manifests"
	"github.com/bergctf/berg-operator/internal/tunnel/tunnelproxy/status"
)

// observe reads the input of a reconciliation. For a Failed pair, whose state is final, it reads nothing.
func (r *Reconciler) observe(ctx context.Context, p *tunnelv1.ContainerNetworkTunnelProxy) (out status.Outcome, err error) {
	out.Proxy = p
	if p.Status.State == tunnelv1.StateFailed {
		return out, nil
	}
	out.Image = p.Status.ClientProxyContainerImage
	o := &out.Observed
	if o.Network, err = apply.Found(ctx, r.Client, client.ObjectKey{Name: p.Spec.ContainerNetworkName}, &tunnelv1.ContainerNetwork{}); err != nil {
		return out, err
	}
	if err := r.observeClient(ctx, o); err != nil {
		return out, err
	}
	if o.Server, err = r.backends.For(p).Observe(ctx, p); err != nil {
		return out, err
	}
	if err := r.observeHost(ctx, o); err != nil {
		return out, err
	}
	cfg := pairSettings(r.Config, *o)
	out.Backend, out.Publish = cfg.Backend, cfg.Publish
	return out, nil
}

// observeClient finds the pod of the client proxy in any namespace: its network may no longer exist. A pod is taken for the
// pair's only if its owner, its labels and its namespace agree: a user of the network may create one with the labels.
func (r *Reconciler) observeClient(ctx context.Context, o *status.Observed) error {
	p := o.Proxy
	var pods corev1.PodList
	if err := r.Client.List(ctx, &pods, client.MatchingLabels{
		tunnelv1.LabelProxy: string(p.UID), tunnelv1.LabelRole: tunnelv1.RoleClient,
	}); err != nil {
		return err
	}
	namespaces := pairobjects.Namespaces{}
	if n := o.Network; n != nil {
		namespaces[n.Name] = network.NamespaceName(n.Spec, n.Name, n.UID)
	}
	owned := pairobjects.ClientProxies(pods.Items, []tunnelv1.ContainerNetworkTunnelProxy{*p}, namespaces)
	if len(owned) == 0 {
		return nil
	}
	o.Client = owned[0]
	switch pairSettings(r.Config, *o).Publish {
	case config.PublishHostPort:
		o.Published = manifests.ReadHostPorts(o.Client)
	case config.PublishNodePort:
		s := &corev1.Service{}
		err := r.Client.Get(ctx, client.ObjectKey{Namespace: o.Client.Namespace, Name: o.Client.Name}, s)
		if err != nil || !pairobjects.OwnerFor(p).Owns(s) {
			return apply.IgnoreAbsent(err)
		}
		o.Published = manifests.ReadNodePorts(s)
	}
	return nil
}

// observeHost finds the node that is the host.
func (r *Reconciler) observeHost(ctx context.Context, o *status.Observed) (err error) {
	o.HostName = cmp.Or(o.Proxy.Annotations[tunnelv1.AnnotationHostNode], r.Config.HostNode)
	name := o.HostName
	if name == "" && o.Client != nil {
		name = o.Client.Spec.NodeName
	}
	if name == "" {
		return nil
	}
	o.Host, err = apply.Found(ctx, r.Client, client.ObjectKey{Name: name}, &corev1.Node{})
	return err
}
