package instances

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// seen waits until the cache has what was written of an object, or a later version, so that a platform that reads after
// it wrote finds what it wrote. absent is what it means if the cache does not have the object: after a creation it is
// not there yet, after a change it is gone again.
//
// This is so for each replica. Another one may need a moment longer: what decides about a write is confirmed.
func (s *Store) seen(ctx context.Context, written client.Object, absent bool) error {
	found := written.DeepCopyObject().(client.Object)
	return s.until(ctx, waitKey(written), func() (bool, error) {
		err := s.cache.Get(ctx, client.ObjectKeyFromObject(written), found)
		switch {
		case apierrors.IsNotFound(err):
			return absent, nil
		case err != nil:
			return false, err
		case found.GetUID() != written.GetUID():
			return true, nil
		}
		order, err := resourceversion.CompareResourceVersion(found.GetResourceVersion(), written.GetResourceVersion())
		return order >= 0, err
	})
}

// until waits until the cache is as wanted, which is asked after each change that is announced under key. It gives up
// after ReadWait: what is asked for comes soon, and what was written is written.
func (s *Store) until(ctx context.Context, key string, wanted func() (bool, error)) error {
	events, stop := s.changes.Wait(key)
	defer stop()
	deadline := s.options.Clock.NewTimer(s.options.ReadWait)
	defer deadline.Stop()
	for {
		if done, err := wanted(); done || err != nil {
			return err
		}
		select {
		case <-events:
		case <-deadline.C():
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
