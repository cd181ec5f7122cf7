package tunnelproxy

import (
	"context"
	"fmt"
	"hash/fnv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/kit/allowlist"
	"github.com/bergctf/berg-operator/internal/tunnel/network"
	"github.com/bergctf/berg-operator/internal/tunnel/pairobjects"
	"github.com/bergctf/berg-operator/internal/tunnel/tunnelproxy/manifests"
)

// hostPorts reserves ports of nodes for pods that may not exist yet. Its zero value is ready for use. A reservation bridges the
// time until the cache shows the pod with its ports. It is kept until the pair is forgotten.
type hostPorts struct {
	mu       sync.Mutex
	reserved map[types.UID]manifests.HostPorts
}

// reserve returns two ports of the node that no other pair has.
func (h *hostPorts) reserve(ctx context.Context, reader client.Reader, uid types.UID, within allowlist.Ports) (chosen manifests.HostPorts, err error) {
	var pods corev1.PodList
	if err := reader.List(ctx, &pods, client.UnsafeDisableDeepCopy, client.MatchingLabels{tunnelv1.LabelRole: tunnelv1.RoleClient}); err != nil {
		return chosen, err
	}
	proxies, err := clientProxies(ctx, reader, pods.Items)
	if err != nil {
		return chosen, err
	}
	taken := map[int32]bool{}
	for _, pod := range proxies {
		ports := manifests.ReadHostPorts(pod)
		taken[ports.Control], taken[ports.Data] = true, true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if mine, exists := h.reserved[uid]; exists {
		return mine, nil
	}
	for _, other := range h.reserved {
		taken[other.Control], taken[other.Data] = true, true
	}
	first, pairs := within.First, (within.Last-within.First+1)/2
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(uid)) // it never fails
	// The UID chooses where the search begins: after a restart a pair most likely gets the ports that it had.
	start := int32(sum.Sum32() % uint32(pairs))
	for i := range pairs {
		control := first + 2*((start+i)%pairs)
		if !taken[control] && !taken[control+1] {
			chosen = manifests.HostPorts{Control: control, Data: control + 1}
			if h.reserved == nil {
				h.reserved = map[types.UID]manifests.HostPorts{}
			}
			h.reserved[uid] = chosen
			return chosen, nil
		}
	}
	return chosen, fmt.Errorf("all ports of TUNNEL_HOST_PORTS (%d-%d) are in use: an administrator must extend the range", first, within.Last)
}

// clientProxies returns the pods that are client proxies of existing pairs. Other pods could have the label, and take the
// whole range.
func clientProxies(ctx context.Context, reader client.Reader, pods []corev1.Pod) ([]*corev1.Pod, error) {
	var pairs tunnelv1.ContainerNetworkTunnelProxyList
	if err := reader.List(ctx, &pairs, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	var networks tunnelv1.ContainerNetworkList
	if err := reader.List(ctx, &networks, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	namespaces := pairobjects.Namespaces{}
	for i := range networks.Items {
		n := &networks.Items[i]
		namespaces[n.Name] = network.NamespaceName(n.Spec, n.Name, n.UID)
	}
	return pairobjects.ClientProxies(pods, pairs.Items, namespaces), nil
}

func (h *hostPorts) release(uid types.UID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.reserved, uid)
}
