package challengeinstance

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
	"github.com/bergctf/berg-operator/internal/kit/apply"
)

// start persists the identity of the instance before the first object that carries it. Later,
// it adopts the current Challenge when a rollout is requested.
func (r *Reconciler) start(ctx context.Context, o *status.Observed, now time.Time) error {
	instance := o.Instance
	fresh := instance.Status.InstanceID == ""
	if !fresh {
		if !status.RolloutDue(o.Candidate, r.Config.Challenge) {
			return nil
		}
		if err := r.latest(ctx, o); err != nil || !status.RolloutDue(o.Candidate, r.Config.Challenge) {
			return err
		}
	}
	before := instance.DeepCopy()
	if err := status.Pin(o, r.Config.Challenge); err != nil {
		return err
	}
	if fresh {
		id, err := uuid.NewV7()
		if err != nil {
			return fmt.Errorf("make an instance ID: %w", err)
		}
		status.Identify(instance, id, now)
		status.Compute(status.Outcome{Observed: *o, Problem: status.BeingBuilt}, r.Config.Challenge, now)
	}
	if err := r.patchStatus(ctx, before, instance); err != nil {
		return err
	}
	r.reportStarted(before, instance)
	return nil
}

// latest reads the Challenge from the API server. A user who requests a rollout has just
// edited the Challenge, and the watches of two kinds are not synchronised: the cache may show
// the request and not yet the edit.
func (r *Reconciler) latest(ctx context.Context, o *status.Observed) error {
	challenge := &bergv1.Challenge{}
	if err := apply.IgnoreAbsent(r.Writer.Live.Get(ctx, o.Key, challenge)); err != nil {
		return err
	}
	o.Challenge = nil
	if challenge.UID != "" {
		o.Challenge = challenge
	}
	return nil
}
