package instances

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/view"
)

var errStopped = failPlayers(NotFound, "The instance was stopped while it started: start it again.", "the instance was stopped while it started: start it again")

// Settle is how long an instance must show the same obstacle before waiting for it ends: a slot of its source may become free
// when the operator has seen the end of the instance that had it.
const Settle = 2 * time.Second

// WaitRunning waits until an instance runs, which the operator says when it accepts connections, until it is stuck for Settle, or for the time
// wait, and returns the last known state. It subscribes before it reads, so that no change is lost. A source whose
// limit is reached is refused; the instance is then deleted, so that it does not start later without a player who waits.
func (s *Store) WaitRunning(ctx context.Context, r Registration, i Instance, wait time.Duration) (Instance, error) {
	changed, stop := s.changes.Wait(pair(r.UID, i.Source))
	defer stop()
	deadline := s.options.Clock.NewTimer(wait)
	defer deadline.Stop()
	settle := s.options.Clock.NewTimer(Settle)
	defer settle.Stop()
	armed, settled := false, false // armed: settle measures how long the instance is stuck; settled: for Settle
	for {
		object, shown, err := s.newest(ctx, r, i)
		if err != nil {
			return i, err
		}
		if object != nil {
			i = shown
			switch i.State {
			case view.Running:
				return i, nil
			case view.Ending:
				return i, errStopped
			}
			waits, err := s.slotComes(ctx, r.Namespace, i)
			switch {
			case err != nil:
				return i, err
			case !i.Stuck:
				armed, settled = false, false
			case waits || !armed:
				settle.Reset(Settle)
				armed, settled = true, false
			case settled && i.Limited:
				refused := failPlayers(Exhausted, "You run as many instances as you may at the same time. Stop another one first.",
					"%s: the instance was not started. Stop another instance first", limitReached(object))
				return i, errors.Join(s.takeBack(ctx, []*bergv1.ChallengeInstance{object}), refused)
			case settled:
				return i, nil
			}
		}
		select {
		case <-changed:
		case <-settle.C():
			// The timer runs from the beginning, also while nothing is stuck.
			settled = armed
		case <-deadline.C():
			return i, nil
		case <-ctx.Done():
			return i, ctx.Err()
		}
	}
}

// newest returns an instance as the cache has it; nil if it is not in the cache yet. It fails if the instance is gone.
func (s *Store) newest(ctx context.Context, r Registration, i Instance) (*bergv1.ChallengeInstance, Instance, error) {
	object := &bergv1.ChallengeInstance{}
	err := s.cache.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: i.Name}, object)
	switch {
	case apierrors.IsNotFound(err):
		if gone, confirmErr := s.gone(ctx, r, i); confirmErr != nil || gone {
			return nil, i, errors.Join(confirmErr, errStopped)
		}
		return nil, i, nil
	case err != nil:
		return nil, i, err
	case object.UID != i.UID:
		return nil, i, errStopped
	}
	shown, err := s.show(ctx, r, object)
	return object, shown, err
}

// gone reports whether the API server has no such instance. The cache cannot say so: after a creation it lags.
func (s *Store) gone(ctx context.Context, r Registration, i Instance) (bool, error) {
	object := &bergv1.ChallengeInstance{}
	err := s.live.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: i.Name}, object)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return err == nil && object.UID != i.UID, err
}

// slotComes reports whether an instance waits for a slot while another instance of its source ends, so that it may start soon.
func (s *Store) slotComes(ctx context.Context, namespace string, i Instance) (bool, error) {
	if i.State != view.Waiting {
		return false, nil
	}
	var list bergv1.ChallengeInstanceList
	if err := s.cache.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{indexSource: i.Source}); err != nil {
		return false, err
	}
	for n := range list.Items {
		if view.IsEnding(&list.Items[n]) {
			return true, nil
		}
	}
	return false, nil
}
