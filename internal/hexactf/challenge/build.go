package challenge

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// build applies the plan. No pod runs before its network policies exist. Nothing is pruned: the objects of a challenge
// never change, and a search for more would list the whole namespace, which may hold thousands of challenges. The order is the
// order of the steps: policies, Services, Deployments. A step that fails ends the list, so a Deployment is never made without the
// objects before it.
func (r *Reconciler) build(ctx context.Context, o Observed) (endpoint int32, _ *outcome.Problem, _ error) {
	in := r.inputs(o)
	p := plan(in)
	confined := len(p.NetworkPolicies) == 0
	stopped := apply.Steps(ctx, r.Writer, ownerFor(o.Challenge), in.Name.Namespace, []apply.Step{
		{
			Condition: hexactfv1.ConditionResourcesCreated,
			Objects:   []apply.Set{apply.Only(p.NetworkPolicies...)},
			Then: func(context.Context, []client.Object) error {
				confined = true
				return nil
			},
		},
		{
			Condition: hexactfv1.ConditionResourcesCreated,
			Parallel:  true,
			Objects:   []apply.Set{apply.Only(p.Services...)},
			Write:     serviceWriter(in.Endpoint),
			Then: func(_ context.Context, live []client.Object) error {
				for _, s := range live {
					if port := serviceNodePort(s); port != 0 {
						// The port is known as soon as the API server has stored the Service, before any pod runs.
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
		return endpoint, nil, nil
	}
	problem := newProblem(stopped[0].Err, r.otherOwner(ctx, o.Challenge, p, stopped[0].Err))
	if confined || !lasting(problem) {
		return endpoint, problem, nil
	}
	problem.Message += stoppedUntilConfined
	// Without the policies its pods would reach everything. They start again when the policies exist.
	scaled, err := r.scaleDown(ctx, o.Challenge, in)
	if err == nil && !scaled {
		log.FromContext(ctx).Info("the pods are stopped: the network policies of the challenge cannot be put in place")
	}
	return endpoint, problem, err
}

const stoppedUntilConfined = ". Until the network policies are in place, no pod of the challenge runs"

// lasting reports whether a problem of the network policies leaves pods without them until its cause is removed. A policy that
// another client changes or deletes is put back each time, and an API server that does not answer leaves the policies as they are.
func lasting(p *outcome.Problem) bool {
	switch p.Reason {
	case outcome.ReasonOwnershipConflict, outcome.ReasonAPINotInstalled, outcome.ReasonRefused:
		return true
	default:
		return false
	}
}
