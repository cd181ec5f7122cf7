package manifests

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/config"
)

// networkPolicyName is the name of the policy of either kind. It isolates the instance: players
// get root in its pods and attack everything that they reach.
const networkPolicyName = "challenge-network-policy"

// ClosedPolicies returns, for a namespace, the policies of an instance without ports and
// without outbound traffic.
func ClosedPolicies(cfg config.Berg, name string) []client.Object {
	in := Inputs{Config: cfg.Challenge, Gateway: cfg.Gateway}
	var policies []client.Object
	if cfg.Challenge.NetworkPolicy.Kubernetes() {
		policies = append(policies, kubernetesNetworkPolicy(in))
	}
	if cfg.Challenge.NetworkPolicy.Cilium() {
		policies = append(policies, ciliumNetworkPolicy(in))
	}
	for _, p := range policies {
		p.SetNamespace(name)
	}
	return policies
}

// reachablePorts returns the ports that everyone may reach, and those that the proxies of the
// Gateway may reach.
func reachablePorts(in Inputs) (public, exposed []bergv1.Port) {
	for _, c := range in.Challenge.Containers {
		for _, p := range c.Ports {
			if p.OnNodePort() {
				public = append(public, p)
			}
			if p.Public() {
				exposed = append(exposed, p)
			}
		}
	}
	return public, exposed
}
