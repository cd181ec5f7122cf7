package challenge

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Plan is every object that a challenge consists of.
type Plan struct {
	// NetworkPolicies are none where the challenge is not isolated.
	NetworkPolicies []*networkingv1.NetworkPolicy
	Services        []*corev1.Service
	Deployments     []*appsv1.Deployment
}

// objects are all objects of a plan.
func (p Plan) objects() []client.Object {
	var all []client.Object
	for _, o := range p.NetworkPolicies {
		all = append(all, o)
	}
	for _, o := range p.Services {
		all = append(all, o)
	}
	for _, o := range p.Deployments {
		all = append(all, o)
	}
	return all
}

// plan puts policies first: they are to be in place before a pod is.
func plan(in Inputs) Plan {
	var p Plan
	if in.Snapshot.Isolated {
		p.NetworkPolicies = networkPolicies(in)
	}
	exposed := exposedComponent(in.Snapshot.Components)
	for i, component := range in.Snapshot.Components {
		if component.Service != nil {
			var published int32
			if i == exposed {
				published = in.Endpoint
			}
			p.Services = append(p.Services, service(in, component, published))
		}
		p.Deployments = append(p.Deployments, deployment(in, component))
	}
	return p
}
