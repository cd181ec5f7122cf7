package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
)

// ProbeName is the subdomain of the DNS query: a wildcard record must answer.
const ProbeName = "kubectl-berg-doctor"

// names needs the lookups, which Offline leaves out. An address that is not the Gateway's is no problem by itself: a load
// balancer may be in front of it.
func names(s Survey) []Result {
	domain, known := s.Setting("CHALLENGE_DOMAIN")
	http, tls := routed(s)
	if !known || s.Names == nil {
		return nil
	}
	if domain == Defaults["CHALLENGE_DOMAIN"] {
		return result("DNS name", console.Warning, "CHALLENGE_DOMAIN is "+domain+", which is an example", "Set CHALLENGE_DOMAIN to your own domain, whose names resolve to the Gateway.")
	}
	name := ProbeName + "." + domain
	found := s.Names[name]
	if len(found) == 0 {
		return result("DNS name", needed(http || tls), fmt.Sprintf("*.%s does not resolve from here: %s", domain, s.NameErrors[name]),
			fmt.Sprintf("Create DNS records: *.%s for the Gateway, and %s for the nodes.", domain, domain))
	}
	if s.Gateway != nil {
		var gates []string
		for _, a := range s.Gateway.Status.Addresses {
			if _, err := netip.ParseAddr(a.Value); err == nil {
				gates = append(gates, a.Value)
			}
		}
		if len(gates) > 0 && !slices.ContainsFunc(found, func(a string) bool { return slices.Contains(gates, a) }) {
			return result("DNS name", console.Warning, fmt.Sprintf("*.%s resolves to %s, but the Gateway is at %s", domain, strings.Join(found, ", "), strings.Join(gates, ", ")),
				"Change the DNS record, unless there is a load balancer in front of the Gateway.")
		}
	}
	return result("DNS name", console.OK, fmt.Sprintf("*.%s resolves to %s", domain, strings.Join(found, ", ")), "")
}

// certificateMargin is how long a certificate should still be valid.
const certificateMargin = 14 * 24 * time.Hour

// certificates checks the certificates that players get: the connection, the trust of browsers, and the expiry.
func certificates(s Survey) []Result {
	var results []Result
	for _, c := range []struct {
		check string
		seen  *TLS
	}{{"certificate, HTTPS", s.HTTPS}, {"certificate, TLS", s.TLSListener}} {
		t := c.seen
		if t == nil {
			continue
		}
		switch left := t.NotAfter.Sub(s.Now); {
		case t.Err != "" && !t.Untrusted:
			results = append(results, result(c.check, console.Warning, fmt.Sprintf("no connection to %s from here: %s", t.Address, t.Err), "Check whether players can connect: a firewall or DNS may be wrong.")...)
		case t.Untrusted:
			results = append(results, result(c.check, console.Warning, fmt.Sprintf("browsers reject it: %s", t.Err), "Install a certificate of a public authority for *."+s.setting("CHALLENGE_DOMAIN")+". A self-signed one is enough for tests.")...)
		case left < 0:
			results = append(results, result(c.check, console.Problem, "it has expired", "Renew it.")...)
		case left < certificateMargin:
			results = append(results, result(c.check, console.Warning, "it expires in "+console.Duration(left), "Renew it before the event.")...)
		default:
			results = append(results, result(c.check, console.OK, fmt.Sprintf("issued by %s, valid for %s", t.Issuer, console.Duration(left)), "")...)
		}
	}
	return results
}

// policy compares NETWORK_POLICY with the APIs and agents of the cluster. It does not test whether policies are enforced: the
// operator does, and health shows the result.
func policy(s Survey) []Result {
	kind, known := s.Setting("NETWORK_POLICY")
	if !known || s.Deployment == nil {
		return nil
	}
	cilium := slices.Contains(s.APIs[APICilium].Resources, "ciliumnetworkpolicies")
	switch {
	case (kind == "cilium" || kind == "both") && !cilium:
		return result("network policy", console.Problem, "NETWORK_POLICY="+kind+", but the cluster does not serve CiliumNetworkPolicy: no instance starts",
			"Install Cilium, or set NETWORK_POLICY=kubernetes if another plugin enforces policies.")
	case kind == "kubernetes" && cilium:
		return result("network policy", console.Warning, "NETWORK_POLICY=kubernetes on a cluster with Cilium", "Set NETWORK_POLICY=auto to use Cilium's policies, which isolate more: docs/berg/isolation.md.")
	case kind == "auto" && cilium && s.CiliumAgents == Missing:
		return result("network policy", console.OK, fmt.Sprintf("Cilium's and Kubernetes' own, chosen by NETWORK_POLICY=auto: no pod of the DaemonSet cilium in %s is ready", s.setting("CILIUM_NAMESPACE")), "")
	case kind == "auto" && cilium && s.CiliumAgents == Present:
		return result("network policy", console.OK, "Cilium's, chosen by NETWORK_POLICY=auto", "")
	case kind == "auto" && cilium:
		return result("network policy", console.OK, "Cilium's, chosen by NETWORK_POLICY=auto, and Kubernetes' own if no agent of Cilium is ready", "")
	case kind == "auto":
		return result("network policy", console.OK, "Kubernetes' own, chosen by NETWORK_POLICY=auto: the network plugin must enforce it", "")
	default:
		return result("network policy", console.OK, "NETWORK_POLICY="+kind, "")
	}
}

// isolationCondition is the condition that the operator writes on its own pod.
const isolationCondition corev1.PodConditionType = "berg.norelect.ch/IsolationVerified"
