package network

import (
	"context"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/kit/admissionpolicy"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/tunnel/pairobjects"
)

// observe reads the namespace, the subnets of pods by node, and the control ports of the client proxies, which the policies name.
func (r *Reconciler) observe(ctx context.Context, n *tunnelv1.ContainerNetwork) (o Observed, err error) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: NamespaceName(n.Spec, n.Name, n.UID)}}
	// The API server confirms that it is missing: a network whose namespace is gone stays Removed.
	exists, err := apply.Find(ctx, r.Writer, ns)
	if err != nil {
		return o, err
	}
	if exists {
		o.Namespace, o.Ours = ns, namespaceOwner(n).Owns(ns)
	}
	var nodes corev1.NodeList
	if err := r.Client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return o, err
	}
	for _, node := range nodes.Items {
		o.Subnets = append(o.Subnets, node.Spec.PodCIDRs...)
	}
	slices.Sort(o.Subnets)
	o.Subnets = slices.Compact(o.Subnets)
	var proxies corev1.PodList
	if err := r.Client.List(ctx, &proxies, client.UnsafeDisableDeepCopy, client.InNamespace(ns.Name), client.MatchingLabels{tunnelv1.LabelRole: tunnelv1.RoleClient}); err != nil {
		return o, err
	}
	var pairs tunnelv1.ContainerNetworkTunnelProxyList
	if err := r.Client.List(ctx, &pairs, client.UnsafeDisableDeepCopy, client.MatchingFields{IndexNetwork: n.Name}); err != nil {
		return o, err
	}
	o.ControlPorts = controlPorts(pairobjects.ClientProxies(proxies.Items, pairs.Items, pairobjects.Namespaces{n.Name: ns.Name}))
	return o, r.observePolicies(ctx, n, &o)
}

// observePolicies finds out whether an admission policy is missing. The pods of a namespace that was not made for the network are
// not the operator's to confine. An installed network goes on without the policy: its containers run, and only new rights are
// refused.
func (r *Reconciler) observePolicies(ctx context.Context, n *tunnelv1.ContainerNetwork, o *Observed) (err error) {
	policies := []*admissionpolicy.Policy{r.Fence}
	if made(n.Spec, o) {
		policies = append(policies, r.Confined)
	}
	if o.MissingPolicy, err = admissionpolicy.Missing(ctx, policies...); err != nil || o.MissingPolicy == "" {
		return err
	}
	key := client.ObjectKey{Namespace: NamespaceName(n.Spec, n.Name, n.UID), Name: bindingName(Inputs{UID: n.UID})}
	live, err := apply.Found(ctx, r.Client, key, &rbacv1.RoleBinding{})
	o.Bound = live != nil && ownerFor(n).Owns(live)
	return err
}

// controlPorts returns the ports in the pods of client proxies. Ports of tunnels are not in the pods.
func controlPorts(proxies []*corev1.Pod) []int32 {
	var all []int32
	for _, pod := range proxies {
		control, data := pairobjects.Ports(pod)
		if control.Name != "" {
			all = append(all, control.ContainerPort)
		}
		if data.Name != "" {
			all = append(all, data.ContainerPort)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// gateways returns the first address of each range.
func gateways(subnets []string) []string {
	var all []string
	for _, s := range subnets {
		if prefix, err := netip.ParsePrefix(s); err == nil {
			all = append(all, prefix.Masked().Addr().Next().String())
		}
	}
	return all
}
