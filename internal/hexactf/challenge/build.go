package challenge

import (
	"context"
	"errors"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
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
	return endpoint, problemOf(stopped[0].Err, r.ownerTerminating(ctx, stopped[0].Err))
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

// ownerTerminating reports whether the conflicting object belongs to another challenge that is being deleted, or is gone:
// then the garbage collector will delete it. This happens when a player starts the same problem again.
func (r *Reconciler) ownerTerminating(ctx context.Context, err error) bool {
	var refused *ownership.RefusedError
	if !errors.As(err, &refused) {
		return false
	}
	var object client.Object
	switch refused.Kind {
	case "Deployment":
		object = &appsv1.Deployment{}
	case "Service":
		object = &corev1.Service{}
	case "NetworkPolicy":
		object = &networkingv1.NetworkPolicy{}
	default:
		return false
	}
	if err := r.Writer.Live.Get(ctx, client.ObjectKey{Namespace: refused.Namespace, Name: refused.Name}, object); err != nil {
		return apply.Absent(err)
	}
	if object.GetDeletionTimestamp() != nil {
		return true
	}
	owner := metav1.GetControllerOf(object)
	if owner == nil || owner.Kind != "Challenge" || schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).Group != hexactfv1.GroupVersion.Group {
		return false
	}
	other := &hexactfv1.Challenge{}
	if err := r.Client.Get(ctx, client.ObjectKey{Namespace: refused.Namespace, Name: owner.Name}, other); err != nil {
		return apply.Absent(err)
	}
	return other.UID != owner.UID || other.DeletionTimestamp != nil
}
