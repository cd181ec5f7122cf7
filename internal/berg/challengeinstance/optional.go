package challengeinstance

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/bergctf/berg-operator/internal/config"
)

// optionalKinds returns the kinds that a cluster may lack, by the name of their CRD. Instances
// that do not need a missing kind run without it.
func optionalKinds(policy config.NetworkPolicy) map[string]client.Object {
	kinds := map[string]client.Object{
		"httproutes.gateway.networking.k8s.io": &gatewayv1.HTTPRoute{},
		"tlsroutes.gateway.networking.k8s.io":  &gatewayv1.TLSRoute{},
		// Read alone, from a cache of their own.
		"gateways.gateway.networking.k8s.io":       &gatewayv1.Gateway{},
		"gatewayclasses.gateway.networking.k8s.io": &gatewayv1.GatewayClass{},
	}
	if policy.Cilium() {
		kinds["ciliumnetworkpolicies.cilium.io"] = &ciliumv2.CiliumNetworkPolicy{}
	}
	return kinds
}
