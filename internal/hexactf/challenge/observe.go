package challenge

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kit/apply"
)

// observe reads what decides whether a challenge can be built, and of one that another operator has started how long
// it lives.
func (r *Reconciler) observe(ctx context.Context, c *hexactfv1.Challenge) (o Outcome, err error) {
	o.Challenge, o.Inherited = c, inherited(c)
	if o.Started, err = decodeSnapshot(c); err != nil || o.Started != nil || o.Inherited && c.Status.RunningAt != nil {
		return o, err
	}
	definition := &hexactfv1.ChallengeDefinition{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Spec.Definition}}
	// A client creates both in a row, and the watches of two kinds do not show the same moment. The platform gets a
	// message about a missing definition, so the API server must confirm it.
	exists, err := apply.Find(ctx, r.Writer, definition)
	if exists {
		o.Definition = definition
	}
	return o, err
}

// observeDeployments adds the Deployments after the writes. The writes of this reconciliation are in it: the client's reads wait
// for them.
func (r *Reconciler) observeDeployments(ctx context.Context, o *Observed) error {
	if o.Started == nil {
		return nil
	}
	in := r.inputs(*o)
	o.Deployments = make([]*appsv1.Deployment, len(o.Started.Components))
	all := true
	for i, component := range o.Started.Components {
		d := &appsv1.Deployment{}
		err := r.Client.Get(ctx, client.ObjectKey{Namespace: o.Challenge.Namespace, Name: in.prefix(component.Name) + deploymentSuffix}, d)
		if apply.IgnoreAbsent(err) != nil {
			return err
		}
		if err == nil && ownerFor(o.Challenge).Owns(d) {
			o.Deployments[i] = d
		}
		all = all && available(o.Deployments[i])
	}
	if all {
		return nil // most are
	}
	var pods corev1.PodList
	// The operator never writes pods: there is no write of its own to wait for.
	err := r.Client.List(ctx, &pods, client.InNamespace(o.Challenge.Namespace),
		client.MatchingFields{indexPartOf: partOfLabel(o.Challenge.Name)}, client.DisableReadYourWritesConsistency)
	o.Pods = pods.Items
	return err
}
