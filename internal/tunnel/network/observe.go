package network

import (
	"context"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/kit/apply"
)

// Observed is everything that decides what happens to a network.
type Observed struct {
	Network *tunnelv1.ContainerNetwork
	// Namespace is nil where there is none.
	Namespace *corev1.Namespace
	// Ours: the namespace carries the proof that it was made for this network.
	Ours bool
	// Subnets are the ranges of pods' addresses that nodes tell, sorted.
	Subnets []string
	// Containers are the IDs of those in the namespace, sorted, if they are Counted yet.
	Containers []string
	Counted    bool
}

func (r *Reconciler) observe(ctx context.Context, n *tunnelv1.ContainerNetwork) (o Observed, err error) {
	o.Network = n
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: NamespaceName(n.Spec, n.Name, n.UID)}}
	// That it is missing is confirmed by the API server: a network whose namespace is gone
	// does not come back.
	exists, err := apply.Find(ctx, r.Writer, ns)
	if err != nil {
		return o, err
	}
	if exists {
		o.Namespace, o.Ours = ns, proofOf(n).Holds(ns)
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
	return o, nil
}

// gateways are the first addresses of ranges.
func gateways(subnets []string) []string {
	var all []string
	for _, s := range subnets {
		if prefix, err := netip.ParsePrefix(s); err == nil {
			all = append(all, prefix.Masked().Addr().Next().String())
		}
	}
	return all
}
