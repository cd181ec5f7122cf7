package challengeinstance

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/admission"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
	"github.com/bergctf/berg-operator/internal/berg/revisions"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/apply"
)

// takeOver gives an instance a prepared one. It returns false if there is none, or it cannot be taken over any more.
func (a *admitter) takeOver(ctx context.Context, w *write, out *status.Outcome, cfg config.Challenge, now time.Time) (taken bool, err error) {
	if w.takes.Name == "" {
		return false, nil
	}
	prepared, adopted, err := a.claim(ctx, w, cfg, now)
	if prepared == nil {
		return false, err
	}
	status.TakeOver(w.Instance, prepared, now)
	out.Adopted, out.Problem, w.sent = adopted, status.TakingOver, true
	return true, nil
}

// claim makes sure that an instance alone takes over a prepared one, and returns it with its content. It returns nil if that
// cannot be taken over any more: then the instance starts without it.
func (a *admitter) claim(ctx context.Context, w *write, cfg config.Challenge, now time.Time) (*bergv1.ChallengeInstance, *status.Adoption, error) {
	prepared := &bergv1.ChallengeInstance{}
	if err := a.Starts.Get(ctx, w.takes, prepared); err != nil {
		return nil, nil, apply.IgnoreAbsent(err)
	}
	claim := &bergv1.InstanceReference{Namespace: w.Instance.Namespace, Name: w.Instance.Name, UID: w.Instance.UID}
	claimed := prepared.Status.ClaimedBy != nil
	if claimed && *prepared.Status.ClaimedBy != *claim || !claimed && !status.Claimable(prepared) {
		return nil, nil, nil
	}
	content, err := a.Revisions.Read(ctx, prepared.Status.ChallengeRevision)
	if unreadable := (*revisions.UnreadableError)(nil); errors.As(err, &unreadable) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	if !claimed {
		if !content.Equals(manifests.NewSnapshot(w.Challenge, cfg)) {
			return nil, nil, nil
		}
		before := prepared.DeepCopy()
		prepared.Status.ClaimedBy = claim
		if err := a.frame.PatchStatus(ctx, before, prepared, now); err != nil {
			return nil, nil, fmt.Errorf("claim the prepared instance %s: %w", w.takes, err)
		}
	}
	return prepared, &status.Adoption{Snapshot: *content, Revision: prepared.Status.ChallengeRevision}, nil
}

// drain deletes the prepared instances whose slots players wait for. Their end leads to the next round.
func (a *admitter) drain(ctx context.Context, r round) error {
	var errs []error
	for _, i := range admission.Drained(r.all, r.decisions) {
		prepared := &bergv1.ChallengeInstance{}
		err := a.Starts.Get(ctx, i.Key, prepared)
		if err == nil && prepared.UID == i.UID && isLive(prepared) && prepared.Status.ClaimedBy == nil {
			err = apply.DeleteUnchanged(ctx, a.Client, prepared)
		}
		if !apierrors.IsConflict(err) { // an instance may have claimed it
			errs = append(errs, apply.IgnoreAbsent(err))
		}
	}
	return errors.Join(errs...)
}
