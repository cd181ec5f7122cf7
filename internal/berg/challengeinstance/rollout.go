package challengeinstance

import (
	"context"
	"time"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/apply"
)

// adopt makes the Challenge as it is now what a live instance is built from, when a new rollout is requested, and when it was
// mended before the instance ran.
func (r *Reconciler) adopt(ctx context.Context, o *status.Observed, cfg config.Challenge, now time.Time) (err error) {
	if o.Instance.Status.ReadyAt == nil || status.RolloutDue(*o, cfg, now) {
		if o.Pods, err = r.observePods(ctx, o.Candidate); err != nil {
			return err
		}
	}
	if !status.RolloutDue(*o, cfg, now) {
		return nil
	}
	if err := r.latest(ctx, o); err != nil || !status.RolloutDue(*o, cfg, now) {
		return err
	}
	r.compareImages(ctx, o)
	before := o.Instance.DeepCopy()
	if err := r.pin(ctx, o, cfg); err != nil {
		return err
	}
	return r.patchStatus(ctx, before, o.Instance)
}

// pin seals with the key that seals now.
func (r *Reconciler) pin(ctx context.Context, o *status.Observed, cfg config.Challenge) error {
	ring, err := r.Keys.Ring(ctx)
	if err != nil {
		return err
	}
	return status.Pin(o, cfg, ring)
}

// sealAgain seals what an earlier version has left readable, and what a former key has sealed.
func (r *Reconciler) sealAgain(ctx context.Context, o *status.Observed) error {
	ring, err := r.Keys.Ring(ctx)
	if err != nil {
		return err
	}
	return status.SealAgain(o, ring)
}

// latest reads the Challenge from the API server. A rollout is requested right after an edit of the Challenge,
// and the watches of two kinds are not in step: the cache may show the request and not yet the edit. That of a new leader
// may be older than what the former leader started the instance with.
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
