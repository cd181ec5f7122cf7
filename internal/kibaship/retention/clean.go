package retention

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kibaship/registry"
)

// maxDeleted is how many images one reconciliation deletes, so that it ends soon and the names are read again.
const maxDeleted = 50

// cleaned is what a clean-up found and did.
type cleaned struct {
	// images is how many the registry had, deleted how many of them it has no longer.
	images, deleted int
	// deferred: a build runs, after which it is tried again. unfinished: there are more to delete.
	deferred, unfinished bool
}

// clean deletes the images of an Application that nothing needs. The cache is asked first, because most Applications have nothing
// to delete, and that answer costs the API server nothing.
func (r *Reconciler) clean(ctx context.Context, a *kibashipv1.Application, repository *registry.Repository, runs string) (done cleaned, err error) {
	keep := newPolicy(a.Spec.ImageRetention, r.Config.Retention)
	images, err := listImages(ctx, repository, keep)
	if done.images = len(images); err != nil || len(images) == 0 {
		return done, err
	}
	named := newNames(repository.Name)
	if done.deferred, err = readNames(ctx, r.Client, a, named, client.UnsafeDisableDeepCopy); err != nil || done.deferred {
		return done, err
	}
	now := r.Clock.Now()
	if len(decide(images, named, runs, keep, now)) == 0 {
		return done, nil
	}
	if done.deferred, err = r.readLive(ctx, a, named); err != nil || done.deferred {
		return done, err
	}
	old := decide(images, named, runs, keep, now)
	if done.unfinished = len(old) > maxDeleted; done.unfinished {
		old = old[:maxDeleted]
	}
	return done, r.delete(ctx, a, repository, old, &done)
}

// listImages returns the images of a repository, none if no policy can delete one of them.
func listImages(ctx context.Context, repository *registry.Repository, keep policy) (images []registry.Stored, err error) {
	tagged, err := repository.Tagged(ctx)
	if err != nil {
		return nil, err
	}
	for digest, tags := range tagged {
		image := registry.Stored{Digest: digest, Tags: tags}
		// The newest ones stay anyway. With fewer images no time is needed, and no request for it.
		if len(tagged) > keep.count {
			if image.Created, err = repository.Created(ctx, digest); err != nil {
				return nil, err
			}
		}
		images = append(images, image)
	}
	return images, nil
}

// readLive reads from the API server which images are named now.
func (r *Reconciler) readLive(ctx context.Context, a *kibashipv1.Application, named *Names) (building bool, err error) {
	if building, err = readNames(ctx, r.Live, a, named, client.Limit(pageSize)); err != nil {
		return false, err
	}
	return building, r.readWorkloads(ctx, a.Namespace, named)
}

// delete deletes images, and puts back those that have been named since the names were read. If that cannot be known, all are put back.
func (r *Reconciler) delete(ctx context.Context, a *kibashipv1.Application, repository *registry.Repository, old []registry.Stored, done *cleaned) (failed error) {
	type deletion struct {
		image   registry.Stored
		restore func(context.Context) error
	}
	var deletions []deletion
	for _, image := range old {
		restore, err := repository.Delete(ctx, image)
		if err != nil {
			failed = err
			break
		}
		deletions = append(deletions, deletion{image, restore})
	}
	if len(deletions) == 0 {
		return failed
	}
	// The deletions are done: a shutdown must not keep them from being checked.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkTimeout)
	defer cancel()
	named := newNames(repository.Name)
	building, err := r.readLive(ctx, a, named)
	failed = errors.Join(failed, err)
	// Without a certain answer each image is put back, also those that nothing named.
	for _, d := range deletions {
		if err == nil && !building && !named.has(d.image) {
			done.deleted++
			continue
		}
		if err := d.restore(ctx); err != nil {
			failed = errors.Join(failed, fmt.Errorf("image %s was named while it was deleted, and cannot be put back: build it again: %w", d.image.Digest, err))
		}
	}
	return failed
}

// checkTimeout bounds the check after deletions.
const checkTimeout = 30 * time.Second
