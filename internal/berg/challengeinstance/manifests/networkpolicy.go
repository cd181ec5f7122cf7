package manifests

import bergv1 "github.com/bergctf/berg-operator/api/berg/v1"

// networkPolicyName is the name of the policy of either kind. It isolates the instance: players
// get root in its pods and attack everything that they reach.
const networkPolicyName = "challenge-network-policy"

// reachablePorts returns the ports that everyone may reach, and the ports that the proxies of the Gateway may reach. Both lists
// are in the order of the Challenge, so the policy does not change without it.
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
