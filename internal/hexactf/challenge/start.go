package challenge

import (
	"context"
	"time"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// start persists what a challenge is built from, and that it is being built, before the first
// object that comes of it.
func (r *Reconciler) start(ctx context.Context, o *Observed, now time.Time) error {
	if o.Started != nil {
		return nil
	}
	c := o.Challenge
	before := c.DeepCopy()
	started := snapshotOf(o.Definition, r.Config)
	raw, err := started.raw()
	if err != nil {
		return err
	}
	identify(c, o.Definition, now)
	c.Status.DefinitionSnapshot = raw
	computeStatus(Outcome{Observed: *o, Problem: beingBuilt, Delivery: r.deliveries.of(c)}, r.Config, now)
	if err := r.patchStatus(ctx, before, c); err != nil {
		return err
	}
	o.Started = started
	created.Inc()
	reconcile.Normal(r.Events, c, hexactfv1.ReasonCreating, actionCreate, "Creating the components of ChallengeDefinition "+c.Spec.Definition)
	return nil
}

// beingBuilt is the state between the start and the first object.
var beingBuilt = &outcome.Problem{
	Condition: hexactfv1.ConditionResourcesCreated, Reason: hexactfv1.ReasonCreating, Class: outcome.InProgress,
	Message: "The objects are being created",
}
