package challenge

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// build applies the plan. No pod runs before its network policies exist. Nothing is pruned: the objects of a challenge
// never change, and a search for more would list the whole namespace, which may hold thousands of challenges.
func (r *Reconciler) build(ctx context.Context, o Observed) (endpoint int32, _ *outcome.Problem) {
	in := r.inputs(o)
	p := plan(in)
	stopped := apply.Steps(ctx, r.Writer, ownerOf(o.Challenge), in.Name.Namespace, []apply.Step{
		{
			Condition: hexactfv1.ConditionResourcesCreated,
			Objects:   []apply.Set{apply.Only(p.NetworkPolicies...)},
		},
		{
			Condition: hexactfv1.ConditionResourcesCreated,
			Parallel:  true,
			Objects:   []apply.Set{apply.Only(p.Services...)},
			Write:     serviceWriter(in.Endpoint),
			Then: func(_ context.Context, live []client.Object) error {
				for _, s := range live {
					if port := endpointOf(s); port != 0 {
						endpoint = port
					}
				}
				return nil
			},
		},
		{
			Condition: hexactfv1.ConditionResourcesCreated,
			Objects:   []apply.Set{apply.Only(p.Deployments...)},
		},
	})
	if len(stopped) == 0 {
		return endpoint, nil
	}
	return endpoint, problemOf(stopped[0].Err, r.otherOwner(ctx, o.Challenge, p, stopped[0].Err))
}

func (r *Reconciler) inputs(o Observed) Inputs {
	return Inputs{
		UID:      o.Challenge.UID,
		Name:     client.ObjectKeyFromObject(o.Challenge),
		Identity: identityOf(o.Challenge),
		Snapshot: *o.Started,
		Endpoint: o.Challenge.Status.Endpoint,
		Config:   r.Config,
	}
}
