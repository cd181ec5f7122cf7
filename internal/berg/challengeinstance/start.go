package challengeinstance

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// start persists what makes this instance this instance, before the first child
// that carries it; later, it adopts the Challenge as it is now when a new
// rollout is asked for.
func (r *Reconciler) start(ctx context.Context, o *Observed, now time.Time) error {
	instance := o.Instance
	fresh := instance.Status.InstanceID == ""
	if !fresh {
		if !rolloutDue(o.Candidate, r.Config.Challenge) {
			return nil
		}
		if err := r.latest(ctx, o); err != nil || !rolloutDue(o.Candidate, r.Config.Challenge) {
			return err
		}
	}
	before := instance.DeepCopy()
	if err := pin(o, r.Config.Challenge); err != nil {
		return err
	}
	if fresh {
		if err := identify(instance, now); err != nil {
			return err
		}
		computeStatus(Outcome{Observed: *o, Problem: beingBuilt}, r.Config.Challenge, now)
	}
	if err := r.patchStatus(ctx, before, instance); err != nil {
		return err
	}
	r.reportStarted(before, instance)
	return nil
}

// latest reads the Challenge anew. Who asks for a rollout has edited the Challenge
// a moment ago, and the watches of two kinds are not of one moment: the cache may
// show the request and not yet the edit.
func (r *Reconciler) latest(ctx context.Context, o *Observed) error {
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

// beingBuilt is the state between the start and the first object.
var beingBuilt = &outcome.Problem{
	Condition: bergv1.ConditionNamespaceCreated, Reason: bergv1.ReasonCreating, Class: outcome.InProgress,
	Message: "The namespace is being created",
}

// identify gives an instance its ID and its start.
func identify(instance *bergv1.ChallengeInstance, now time.Time) error {
	s := &instance.Status
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("make an instance ID: %w", err)
	}
	stampTime(&id, now)
	s.InstanceID = id.String()
	s.StartedAt = &metav1.Time{Time: now.Truncate(time.Second)}
	s.Namespace = NamespaceName(instance.Spec.OwnerID)
	return nil
}

// pin makes the Challenge and the configuration as they are now what the instance
// is built from.
func pin(o *Observed, cfg config.Challenge) error {
	s := &o.Instance.Status
	pinned := snapshotOf(o.Challenge)
	pinned.Defaults = defaultsOf(cfg)
	raw, err := pinned.raw()
	if err != nil {
		return err
	}
	s.ChallengeSnapshot = raw
	s.Services = stillWanted(s.Services, pinned.Containers)
	s.ChallengeGeneration = o.Challenge.Generation
	s.ObservedRollout = o.Instance.Annotations[bergv1.AnnotationRollout]
	o.Pinned = &pinned
	return nil
}

// rolloutAsked reports whether a rollout was asked for that was not carried out.
func rolloutAsked(instance *bergv1.ChallengeInstance) bool {
	return instance.Annotations[bergv1.AnnotationRollout] != instance.Status.ObservedRollout
}

// rolloutDue reports whether the instance must adopt its Challenge now. One that
// cannot be run is not adopted; when it is fixed, it is.
func rolloutDue(c Candidate, cfg config.Challenge) bool {
	return rolloutAsked(c.Instance) && checkAdoption(c, cfg) == nil
}
