package challengeinstance

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
	"github.com/bergctf/berg-operator/internal/berg/redact"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

// build applies the plan. No pod is created before its network policies and the objects that it reads exist. It returns the
// endpoints, nil until every Service exists, and stores in times when it wrote objects.
func (r *Reconciler) build(ctx context.Context, o *status.Observed, times *status.Written) ([]manifests.Endpoint, *outcome.Problem) {
	in := r.inputs(*o)
	f, err := manifests.PlanFoundation(in)
	if err != nil {
		return nil, &outcome.Problem{Condition: bergv1.ConditionFlagValidation, Reason: bergv1.ReasonInvalidFlag, Class: outcome.Blocked, Message: redact.Text(err.Error(), in.Flag)}
	}
	owner := manifests.OwnerFor(o.Instance)
	var reached []manifests.Endpoint
	var secrets map[string]manifests.PullSecretUse
	var workloads []*appsv1.Deployment
	stopped := apply.Steps(ctx, r.Writer, owner, in.Namespace(), []apply.Step{
		{
			Condition: bergv1.ConditionNamespaceCreated,
			Objects:   []apply.Set{apply.Only(f.Namespace)},
			Write: func(ctx context.Context, w apply.Writer, _ ownership.Owner, desired client.Object) (client.Object, error) {
				return apply.Apply(ctx, w, r.namespaceOwner(o.Instance), desired)
			},
			Then: func(ctx context.Context, live []client.Object) error {
				times.Namespace, times.NamespaceUID = r.Clock.Now(), live[0].GetUID()
				return r.grantPods(ctx, in, times.NamespaceUID)
			},
		},
		// These do not depend on each other, and no pod exists yet.
		{
			Condition:  bergv1.ConditionNetworkPolicyCreated,
			Objects:    policySets(in, f),
			PruneFirst: true, // policies add up: a leftover one may allow traffic that the others deny
			Then: func(ctx context.Context, _ []client.Object) error {
				if err := r.pruneOtherPolicies(ctx, owner, in); err != nil {
					return err
				}
				return r.former.prune(ctx, r.Client, r.Live, owner, in.Namespace())
			},
		},
		{
			Condition: bergv1.ConditionServicesCreated,
			Parallel:  true,
			Objects:   []apply.Set{apply.All(f.Services)},
			Write:     applyService,
			Then: func(_ context.Context, live []client.Object) (err error) {
				reached, err = manifests.PortEndpoints(in, asServices(live))
				return err
			},
		},
		{
			Condition: bergv1.ConditionRoutesCreated,
			Parallel:  true,
			Objects:   []apply.Set{apply.All(f.HTTPRoutes), apply.All(f.TLSRoutes)},
		},
		// The objects that pods mount, the disruption budgets, and the pull secrets.
		{
			Condition: bergv1.ConditionDeploymentsCreated,
			Parallel:  true,
			Objects:   []apply.Set{apply.All(f.ConfigMaps), apply.All(f.DisruptionBudgets)},
			Replace:   true, // in case a ConfigMap was made immutable
			Write:     writeUnlessExists(in.Unclaimed),
			Then: func(ctx context.Context, _ []client.Object) (err error) {
				secrets, err = r.copyPullSecrets(ctx, *o, in)
				return err
			},
		},
		// The Deployments need the node ports that the API server has allocated, and the copies of the pull secret.
		{
			Condition: bergv1.ConditionDeploymentsCreated,
			Then: func(context.Context, []client.Object) error {
				in.PullSecrets = secrets
				workloads = manifests.PlanWorkloads(in, reached)
				return nil
			},
		},
		{
			Condition: bergv1.ConditionDeploymentsCreated,
			Plan:      func() []apply.Set { return []apply.Set{apply.All(workloads)} },
		},
	})
	// Players would otherwise see an address that leads nowhere. Routes that the status showed before exist already.
	if stopped.For(bergv1.ConditionRoutesCreated) != nil {
		reached = manifests.WithoutNewRoutes(reached, in.Recorded)
	}
	if len(stopped) > 0 {
		return reached, status.NewProblem(stopped[0].Condition, stopped[0].Err, in.Flag)
	}
	times.Objects = r.Clock.Now()
	return reached, nil
}

// inputs returns the inputs of a plan. Defaults, images and source are persisted values of the start or the last rollout:
// present settings would change the objects of a live instance, and restart its pods.
func (r *Reconciler) inputs(o status.Observed) manifests.Inputs {
	cfg := r.Config.Challenge
	// The kind of network policy follows the cluster of today and not the start: a policy of a kind that is no longer enforced
	// confines nothing.
	cfg.Defaults, cfg.NetworkPolicy = o.Pinned.Defaults, o.Policies
	return manifests.Inputs{
		UID:                manifests.OwnerUID(o.Instance),
		Name:               client.ObjectKeyFromObject(o.Instance),
		InstanceID:         o.Instance.Status.InstanceID,
		Seed:               o.Instance.Status.Seed,
		OwnerID:            o.Instance.Spec.OwnerID,
		Existing:           manifests.NamespaceFor(o.Instance),
		Prepared:           o.Prepared || o.Instance.Status.PreparedFrom != "",
		Unclaimed:          o.Prepared,
		Flag:               o.Instance.Spec.Flag,
		ChallengeName:      o.Key.Name,
		ChallengeNamespace: o.Key.Namespace,
		Challenge:          *o.Pinned,
		Source:             o.Instance.Status.Source,
		Images:             o.Instance.Status.Images,
		Recorded:           o.Instance.Status.Services,
		Cause:              o.Published,
		Config:             cfg,
		Gateway:            r.Config.Gateway,
	}
}
