package challengeinstance

import (
	"context"
	"errors"

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

// build applies the plan, in the order in which a pod could do harm if something
// before it were missing. It returns the endpoints once every Service stands.
func (r *Reconciler) build(ctx context.Context, o Observed) ([]Endpoint, *outcome.Problem) {
	in := r.inputs(o)
	problem := func(condition string, err error) *outcome.Problem { return problemOf(condition, err, in.Flag) }

	f, err := planFoundation(in)
	if err != nil {
		return nil, &outcome.Problem{Condition: bergv1.ConditionFlagValidation, Reason: bergv1.ReasonInvalidFlag, Class: outcome.Blocked, Message: redact(err.Error(), in.Flag)}
	}
	w, proof := r.Writer, proofOf(o.Instance)
	if _, err := apply.Apply(ctx, w, proof, f.Namespace); err != nil {
		return nil, problem(bergv1.ConditionNamespaceCreated, err)
	}
	if err := r.applyNetworkPolicies(ctx, w, proof, in.namespace(), f); err != nil {
		return nil, problem(bergv1.ConditionNetworkPolicyCreated, err)
	}
	services, err := applyServices(ctx, w, proof, f.Services)
	if err != nil {
		return nil, problem(bergv1.ConditionServicesCreated, err)
	}
	endpoints, err := endpoints(in, services)
	if err != nil {
		return nil, problem(bergv1.ConditionServicesCreated, err)
	}
	if _, err := applyAll(ctx, w, proof, f.HTTPRoutes); err != nil {
		return endpoints, problem(bergv1.ConditionRoutesCreated, err)
	}
	if _, err := applyAll(ctx, w, proof, f.TLSRoutes); err != nil {
		return endpoints, problem(bergv1.ConditionRoutesCreated, err)
	}
	if err := r.applyWorkloads(ctx, w, proof, o.Instance, in, f, endpoints); err != nil {
		return endpoints, problem(bergv1.ConditionDeploymentsCreated, err)
	}
	return endpoints, nil
}

// applyWorkloads writes what runs, and deletes what no longer belongs.
func (r *Reconciler) applyWorkloads(ctx context.Context, w apply.Writer, proof ownership.Proof, instance *bergv1.ChallengeInstance, in Inputs, f Foundation, endpoints []Endpoint) error {
	if _, err := applyAll(ctx, w, proof, f.ConfigMaps); err != nil {
		return err
	}
	if _, err := applyAll(ctx, w, proof, f.DisruptionBudgets); err != nil {
		return err
	}
	if err := r.copyPullSecret(ctx, instance, in); err != nil {
		return err
	}
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
