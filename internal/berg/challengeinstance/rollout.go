package challengeinstance

import (
	"context"
	"time"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// adopt returns the content that a live instance is built from when it adopts its Challenge: because a new rollout is
// requested, or because the Challenge was edited before the instance ran. It returns nil if the instance keeps its content,
// with the problem if the new content cannot be stored.
func (r *Reconciler) adopt(ctx context.Context, o *status.Observed, now time.Time) (*status.Adoption, *outcome.Problem, error) {
	cfg := r.settings(*o)
	if !status.RolloutDue(*o, cfg, now) {
		return nil, nil, nil
	}
	// The cache only decides whether to ask the API server, since most reconciliations adopt nothing.
	if err := r.latest(ctx, o); err != nil || !status.RolloutDue(*o, cfg, now) {
		return nil, nil, err
	}
	adopted, err := r.store(ctx, *o, cfg)
	if err != nil {
		return nil, status.NewProblem(bergv1.ConditionChallengeFound, err, o.Instance.Spec.Flag), nil
	}
	return adopted, nil, nil
}

// store makes sure that the current Challenge and configuration are stored. The caller must write the returned name into
// the status in the same reconciliation: see revisions.Store.Ensure.
func (r *Reconciler) store(ctx context.Context, o status.Observed, cfg config.Challenge) (*status.Adoption, error) {
	snapshot := manifests.NewSnapshot(o.Challenge, cfg)
	name, err := r.Revisions.Ensure(ctx, snapshot)
	if err != nil {
		return nil, err
	}
	return &status.Adoption{Snapshot: snapshot, Revision: name}, nil
}

// latest reads the Challenge from the API server. A rollout is requested right after an edit of the Challenge,
// and the watches of two kinds are not in step: the cache may show the request and not yet the edit. A new leader's cache
// may be older than the content that the former leader started the instance with.
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
