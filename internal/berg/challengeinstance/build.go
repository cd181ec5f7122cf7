package challengeinstance

import (
	"cmp"
	"context"
	"errors"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

// build applies the plan. No pod runs before all that confines it stands, and what it is
// told. It returns the endpoints, nil until every Service stands.
func (r *Reconciler) build(ctx context.Context, o Observed) ([]Endpoint, *outcome.Problem) {
	in := r.inputs(o)
	w, proof := r.Writer, proofOf(o.Instance)
	problem := func(condition string, err error) *outcome.Problem {
		if err == nil {
			return nil
		}
		return problemOf(condition, err, in.Flag)
	}

	f, err := planFoundation(in)
	if err != nil {
		return nil, &outcome.Problem{Condition: bergv1.ConditionFlagValidation, Reason: bergv1.ReasonInvalidFlag, Class: outcome.Blocked, Message: redact(err.Error(), in.Flag)}
	}
	if _, err := apply.Apply(ctx, w, proof, f.Namespace); err != nil {
		return nil, problem(bergv1.ConditionNamespaceCreated, err)
	}
	// None of these needs another one, and as yet there is no pod that could do harm.
	var services []*corev1.Service
	var secrets map[string]pullSecretUse
	problems := together(
		func() *outcome.Problem {
			return problem(bergv1.ConditionNetworkPolicyCreated, r.applyNetworkPolicies(ctx, w, proof, in.namespace(), f))
		},
		func() *outcome.Problem {
			var err error
			services, err = applyServices(ctx, w, proof, f.Services)
			return problem(bergv1.ConditionServicesCreated, err)
		},
		func() *outcome.Problem {
			return problem(bergv1.ConditionRoutesCreated, applyRoutes(ctx, w, proof, f))
		},
		func() *outcome.Problem {
			var err error
			secrets, err = r.applySupplies(ctx, w, proof, o, in, f)
			return problem(bergv1.ConditionDeploymentsCreated, err)
		},
	)
	policies, ports, routes, supplies := problems[0], problems[1], problems[2], problems[3]
	if ports != nil {
		return nil, cmp.Or(policies, ports)
	}
	endpoints, err := endpoints(in, services)
	if err != nil {
		return nil, cmp.Or(policies, problem(bergv1.ConditionServicesCreated, err))
	}
	if routes != nil {
		endpoints = withoutNewRoutes(endpoints, in.Recorded)
	}
	if p := cmp.Or(policies, routes, supplies); p != nil {
		return endpoints, p
	}
	in.PullSecrets = secrets
	return endpoints, problem(bergv1.ConditionDeploymentsCreated, r.applyWorkloads(ctx, w, proof, in, f, endpoints))
}

// together takes steps at once, waits for all of them, and returns the problem of each.
// A panic of one becomes a panic of the caller, whom the controller guards.
func together(steps ...func() *outcome.Problem) []*outcome.Problem {
	problems, panics := make([]*outcome.Problem, len(steps)), make([]any, len(steps))
	var under sync.WaitGroup
	for i, step := range steps {
		under.Go(func() {
			defer func() { panics[i] = recover() }()
			problems[i] = step()
		})
	}
	under.Wait()
	for _, p := range panics {
		if p != nil {
			panic(p)
		}
	}
	return problems
}

func applyRoutes(ctx context.Context, w apply.Writer, proof ownership.Proof, f Foundation) error {
	if _, err := applyAll(ctx, w, proof, f.HTTPRoutes); err != nil {
		return err
	}
	_, err := applyAll(ctx, w, proof, f.TLSRoutes)
	return err
}

// applySupplies writes what pods mount, what guards them, and what their images are
// pulled with.
func (r *Reconciler) applySupplies(ctx context.Context, w apply.Writer, proof ownership.Proof, o Observed, in Inputs, f Foundation) (map[string]pullSecretUse, error) {
	if _, err := applyAll(ctx, w, proof, f.ConfigMaps); err != nil {
		return nil, err
	}
	if _, err := applyAll(ctx, w, proof, f.DisruptionBudgets); err != nil {
		return nil, err
	}
	return r.copyPullSecrets(ctx, o, in)
}

// applyWorkloads writes what runs, and deletes what no longer belongs.
func (r *Reconciler) applyWorkloads(ctx context.Context, w apply.Writer, proof ownership.Proof, in Inputs, f Foundation, endpoints []Endpoint) error {
	deployments := planWorkloads(in, endpoints)
	if _, err := applyAll(ctx, w, proof, deployments); err != nil {
		return err
	}
	ns := in.namespace()
	return errors.Join(
		apply.Prune(ctx, w, proof, &appsv1.DeploymentList{}, ns, named(deployments)),
		apply.Prune(ctx, w, proof, &corev1.ServiceList{}, ns, named(f.Services)),
		apply.Prune(ctx, w, proof, &corev1.ConfigMapList{}, ns, named(f.ConfigMaps)),
		apply.Prune(ctx, w, proof, &policyv1.PodDisruptionBudgetList{}, ns, named(f.DisruptionBudgets)),
		apply.Prune(ctx, w, proof, &gatewayv1.HTTPRouteList{}, ns, named(f.HTTPRoutes)),
		apply.Prune(ctx, w, proof, &gatewayv1.TLSRouteList{}, ns, named(f.TLSRoutes)),
	)
}

func applyAll[T client.Object](ctx context.Context, w apply.Writer, proof ownership.Proof, desired []T) ([]T, error) {
	live := make([]T, 0, len(desired))
	for _, d := range desired {
		l, err := apply.Apply(ctx, w, proof, d)
		if err != nil {
			return nil, err
		}
		live = append(live, l)
	}
	return live, nil
}

// named reports whether a name is that of one of the objects.
func named[T client.Object](objects []T) func(string) bool {
	return func(name string) bool {
		for _, o := range objects {
			if o.GetName() == name {
				return true
			}
		}
		return false
	}
}

func (r *Reconciler) inputs(o Observed) Inputs {
	return Inputs{
		UID:                o.Instance.UID,
		Name:               client.ObjectKeyFromObject(o.Instance),
		InstanceID:         o.Instance.Status.InstanceID,
		OwnerID:            o.Instance.Spec.OwnerID,
		Flag:               o.Instance.Spec.Flag,
		ChallengeName:      o.Key.Name,
		ChallengeNamespace: o.Key.Namespace,
		Challenge:          *o.Pinned,
		Recorded:           o.Instance.Status.Services,
		Config:             o.Pinned.Defaults.over(r.Config.Challenge),
		Gateway:            r.Config.Gateway,
	}
}
