package manifests

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/config"
)

// Foundation has the objects that must exist before a pod may run. None of them depends on values that the API server
// allocates.
type Foundation struct {
	Namespace *corev1.Namespace
	// One or both kinds of policy, as configured.
	NetworkPolicies       []*networkingv1.NetworkPolicy
	CiliumNetworkPolicies []*ciliumv2.CiliumNetworkPolicy

	Services          []*corev1.Service
	HTTPRoutes        []*gatewayv1.HTTPRoute
	TLSRoutes         []*gatewayv1.TLSRoute
	ConfigMaps        []*corev1.ConfigMap
	DisruptionBudgets []*policyv1.PodDisruptionBudget
}

// PlanFoundation returns everything but the Deployments. It fails only if no program can be built
// from the flag.
func PlanFoundation(in Inputs) (Foundation, error) {
	configMaps, err := flagConfigMaps(in)
	if err != nil {
		return Foundation{}, err
	}
	f := Foundation{Namespace: namespace(in), ConfigMaps: configMaps}
	if in.Config.NetworkPolicy.Kubernetes() {
		f.NetworkPolicies = append(f.NetworkPolicies, kubernetesNetworkPolicy(in))
	}
	if in.Config.NetworkPolicy.Cilium() {
		f.CiliumNetworkPolicies = append(f.CiliumNetworkPolicies, ciliumNetworkPolicy(in))
	}
	for _, c := range in.Challenge.Containers {
		f.Services = append(f.Services, services(in, c)...)
		f.DisruptionBudgets = append(f.DisruptionBudgets, disruptionBudget(in, c))
		for _, p := range c.Ports {
			switch p.EffectiveType() {
			case bergv1.InternalPort, bergv1.PublicPort: // reached by their Services
			case bergv1.PublicHTTPRoute:
				f.HTTPRoutes = append(f.HTTPRoutes, httpRoute(in, c, p))
			case bergv1.PublicTLSRoute:
				f.TLSRoutes = append(f.TLSRoutes, tlsRoute(in, c, p))
			}
		}
	}
	return f, nil
}

// PlanWorkloads returns the Deployments. They come last because every container gets the endpoints
// of all containers, and the API server allocates the node ports.
func PlanWorkloads(in Inputs, endpoints []Endpoint) []*appsv1.Deployment {
	out := make([]*appsv1.Deployment, 0, len(in.Challenge.Containers))
	for _, c := range in.Challenge.Containers {
		out = append(out, deployment(in, c, endpoints))
	}
	return out
}

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
