package challenge

import (
	"context"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// start persists the snapshot of a challenge, and that it is being built, before the first object exists: a
// reconciliation after a crash builds the same objects. If the patch fails, nothing was built, and the next reconciliation
// decides again.
func (r *Reconciler) start(ctx context.Context, out *Outcome) error {
	if out.Started != nil {
		return nil
	}
	c, now := out.Challenge, r.Clock.Now()
	before := c.DeepCopy()
	started := newSnapshot(out.Definition, r.Config)
	raw, err := started.raw()
	if err != nil {
		return err
	}
	identify(c, out.Definition, now)
	c.Status.DefinitionSnapshot = raw
	c.Status.ObservedGeneration = c.Generation
	computeStatus(Outcome{Observed: out.Observed, Problem: beingBuilt, Delivery: r.deliveries.get(c)}, r.Config, now).
		SetOn(&c.Status.Conditions, c.Generation, now)
	if err := r.kind.PatchStatus(ctx, before, c, now); err != nil {
		return err
	}
	out.Started = started
	created.Inc()
	reconcile.Normal(r.Events, c, hexactfv1.ReasonCreating, actionCreate, "Creating the components of ChallengeDefinition "+c.Spec.Definition)
	return nil
}

// beingBuilt is the state between the start and the first object.
var beingBuilt = &outcome.Problem{
	Condition: hexactfv1.ConditionResourcesCreated, Reason: hexactfv1.ReasonCreating, Class: outcome.InProgress,
	Message: "The objects are being created",
}
