package instances

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// seen waits until the cache has the written version of an object or a later one, so that a platform that reads after a
// write gets its own write. absent is the result while the cache does not have the object: false after a creation,
// because the object is still to come; true after a change, because the object is deleted again.
//
// The guarantee holds within one replica. The caches of other replicas may lag; decisions about writes therefore read
// the API server.
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

// until waits until wanted reports true. It calls wanted first, and again after each change under key. After ReadWait
// it returns without an error: the write has succeeded, and only the cache is late.
func (s *Store) until(ctx context.Context, key string, wanted func() (bool, error)) error {
	// Before the first read, so that no change is lost.
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
