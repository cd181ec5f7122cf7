package instances

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// Renew extends the life of an instance to now plus the timeout of its registration, or plus wanted if that is not 0. It reads
// the instance from the API server, since another replica may have ended it.
func (s *Store) Renew(ctx context.Context, r Registration, source string, wanted time.Duration) (Instance, error) {
	now := s.options.Clock.Now()
	switch {
	case wanted == 0 && r.Timeout == 0:
		return Instance{}, failPlayers(Refused, "This instance cannot be extended.", "instances of challenge %s cannot be renewed: it has no timeout", r.ID)
	case r.expired(now):
		return Instance{}, r.errOver()
	}
	if wanted > 0 {
		r.Timeout = wanted
	}
	if err := s.mayWrite(source); err != nil {
		return Instance{}, err
	}
	current, _, err := s.current(ctx, r, source)
	if err != nil {
		return Instance{}, err
	}
	changed := current.DeepCopy()
	changed.Spec.Timeout, changed.Spec.Until = r.timeout(startOrNow(current, now), now), r.latestEnd()
	metaSet(&changed.Annotations, AnnotationRenewedAt, now.UTC().Format(time.RFC3339))
	if err := s.patch(ctx, current, changed); err != nil {
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return Instance{}, noInstance(r, source)
		}
		return Instance{}, explain(err, current.Spec.Flag)
	}
	return s.observed(ctx, r, changed)
}

// observed waits, for ReadWait, until the operator has reported the times of a changed instance.
func (s *Store) observed(ctx context.Context, r Registration, changed *bergv1.ChallengeInstance) (Instance, error) {
	err := s.until(ctx, waitKey(changed), func() (bool, error) {
		object := &bergv1.ChallengeInstance{}
		err := s.cache.Get(ctx, client.ObjectKeyFromObject(changed), object)
		if err != nil || object.UID != changed.UID || object.Status.ObservedGeneration < changed.Generation {
			return false, client.IgnoreNotFound(err)
		}
		changed = object
		return true, nil
	})
	if err != nil {
		return Instance{}, err
	}
	return s.show(ctx, r, changed)
}

// End ends the instance of a source: it asks the operator to delete it, as a request of the player. It only asks. The operator
// deletes the instance, with its namespace, and a stop that is repeated finds no live instance.
func (s *Store) End(ctx context.Context, r Registration, source string) error {
	if err := s.mayWrite(source); err != nil {
		return err
	}
	current, superseded, err := s.current(ctx, r, source)
	if err != nil {
		return err
	}
	if err := s.takeBack(ctx, superseded); err != nil {
		return err
	}
	changed := current.DeepCopy()
	changed.Spec.TerminationReason = bergv1.TerminationUserRequest
	if err := s.patch(ctx, current, changed); apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // it is gone
	} else if err != nil {
		return err
	}
	return s.seen(ctx, changed, true)
}

// patch writes the difference between two versions of an instance. It fails with NotFound or Conflict if the instance
// was deleted or replaced since. changed then has the result from the API server.
func (s *Store) patch(ctx context.Context, from, changed *bergv1.ChallengeInstance) error {
	before := from.DeepCopy()
	before.UID = "" // the patch then contains the UID, and another instance of the same name refuses it
	return s.live.Patch(ctx, changed, client.MergeFrom(before))
}
