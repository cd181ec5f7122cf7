package follow

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// A gate may have several addresses: a Service for each, which leads to ports of the pods of its own. Then Gateways can have the same
// hosts and ports. The status of a Gateway says which address it has, so that it keeps it; the leader gives one to a new Gateway. With
// one address, all Gateways share it.
// SetAddresses sets the addresses of the first Service, for a gate that is reached elsewhere.
func (s *State) SetAddresses(addresses []gatewayv1.GatewayStatusAddress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[0] = addresses
}

// setAddresses notes the addresses of one of the gate's Services.
func (s *State) setAddresses(service *corev1.Service) {
	i := slices.Index(s.addresses, types.NamespacedName{Namespace: service.Namespace, Name: service.Name})
	if i < 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if addresses := serviceAddresses(service); !equality.Semantic.DeepEqual(s.known[i], addresses) {
		s.known[i] = addresses
		s.compileGateways()
	}
}

// serviceAddresses returns the addresses of a Service: those of its load balancer, else its external ones, else those of the cluster.
func serviceAddresses(service *corev1.Service) []gatewayv1.GatewayStatusAddress {
	var out []gatewayv1.GatewayStatusAddress
	add := func(kind gatewayv1.AddressType, value string) {
		if value != "" && value != corev1.ClusterIPNone {
			out = append(out, gatewayv1.GatewayStatusAddress{Type: ptr.To(kind), Value: value})
		}
	}
	for _, ingress := range service.Status.LoadBalancer.Ingress {
		add(gatewayv1.IPAddressType, ingress.IP)
		add(gatewayv1.HostnameAddressType, ingress.Hostname)
	}
	if len(out) == 0 {
		for _, ip := range service.Spec.ExternalIPs {
			add(gatewayv1.IPAddressType, ip)
		}
	}
	if len(out) == 0 {
		for _, ip := range service.Spec.ClusterIPs {
			add(gatewayv1.IPAddressType, ip)
		}
	}
	return out
}

// ChooseAddresses returns the addresses for a Gateway. It keeps its Service; a new one gets the Service with the fewest Gateways.
// Only the leader calls it, so no two replicas choose. A new leader reads the choices from the statuses, and may choose another
// address for a Gateway whose status was not written.
func (s *State) ChooseAddresses(gateway *gatewayv1.Gateway) []gatewayv1.GatewayStatusAddress {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(gateway.Status.Addresses) > 0 {
		return s.known[s.address(gateway)]
	}
	name := types.NamespacedName{Namespace: gateway.Namespace, Name: gateway.Name}
	chosen, found := s.chosen[name]
	if !found {
		used := make([]int, len(s.known))
		for other, object := range s.gateways {
			if number, waits := s.chosen[other]; waits {
				used[number]++
			} else if s.compiled[other] != nil && len(object.Status.Addresses) > 0 {
				used[s.address(object)]++
			}
		}
		chosen = slices.Index(used, slices.Min(used))
		s.chosen[name] = chosen // until the status has it, others must not get it
	}
	return s.known[chosen]
}
