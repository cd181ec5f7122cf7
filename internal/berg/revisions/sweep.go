package revisions

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/bergctf/berg-operator/internal/kit/apply"
)

// sweepInterval is the interval between two deletions of unused Secrets. An unused Secret costs some kilobytes, so nothing is
// gained by a shorter one. It is not shorter than graceTime: see Run.
const sweepInterval = 10 * time.Minute

// Names lists the names of the Secrets that instances name.
type Names func(ctx context.Context) (sets.Set[string], error)

// Run sweeps at an interval until the context ends. The first sweep comes after one interval: a process deletes no Secret
// before graceTime has passed since it found it.
func (s *Store[T]) Run(ctx context.Context, cached, live Names) error {
	ticker := time.NewTicker(sweepInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := s.Sweep(ctx, cached, live); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "stored Challenges that no instance uses were not deleted; it is tried again")
		}
	}
}

// Sweep deletes the Secrets that no instance names. It restores a Secret that an instance names, that was deleted, and
// whose content this process has read. cached may lag behind the API server; live is called only if a Secret is to be
// deleted.
//
// The order makes a deletion safe: first the Secrets are listed, then unused ones are retired in this process, and only
// then the API server lists the names. A name that was given before the retirement is in a status by then, or its
// reconciliation has failed; none is given after it.
func (s *Store[T]) Sweep(ctx context.Context, cached, live Names) error {
	stored, err := s.list(ctx)
	if err != nil {
		return err
	}
	named, err := cached(ctx)
	if err != nil {
		return err
	}
	errs := []error{s.restore(ctx, stored, named)}
	unused := s.retire(stored, named)
	if len(unused) > 0 {
		// From here on this process names none of them. The names that it gave earlier are older than graceTime, so they
		// are in a status by now, and this list shows them.
		if named, err = live(ctx); err != nil {
			return errors.Join(append(errs, err)...)
		}
	}
	for _, secret := range unused {
		if !named.Has(secret.Name) {
			errs = append(errs, s.remove(ctx, secret))
		}
	}
	return errors.Join(errs...)
}

// retire returns the Secrets that no instance of the cache names and that this process has not named during graceTime. From
// then on this process does not name them, even if they are not deleted: Ensure then stores the content again. A process that is
// killed after this line has deleted nothing. Its successor finds the same Secrets, and waits its own graceTime.
func (s *Store[T]) retire(stored map[string]*corev1.Secret, named sets.Set[string]) (unused []*corev1.Secret) {
	for name, secret := range stored {
		if named.Has(name) || !s.retireOne(name) {
			continue
		}
		unused = append(unused, secret)
	}
	return unused
}

// retireOne forgets a revision before it is deleted, so that no instance starts with it from then on.
func (s *Store[T]) retireOne(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.revisions[name]
	// A status that this process is about to write may still name it.
	if r == nil || s.clock.Since(r.used) < graceTime {
		return false
	}
	if s.byContent[r.hash] == name {
		delete(s.byContent, r.hash)
	}
	delete(s.revisions, name)
	return true
}

// remove deletes a Secret in the version in which it was listed. If another process has claimed it since, the API server
// refuses the deletion.
func (s *Store[T]) remove(ctx context.Context, secret *corev1.Secret) error {
	err := apply.IgnoreAbsent(s.client.Delete(ctx, secret,
		client.Preconditions(metav1.Preconditions{UID: &secret.UID, ResourceVersion: &secret.ResourceVersion}), client.DisableReadYourWritesConsistency))
	if err != nil {
		return fmt.Errorf("delete the unused Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return nil
}

// restore creates named Secrets again that another client has deleted. Content and salt are the same, so they get the same
// name, and no status changes. The content comes from the memory of this process. A process that never read it cannot restore it:
// the instances then report RevisionMissing.
func (s *Store[T]) restore(ctx context.Context, stored map[string]*corev1.Secret, named sets.Set[string]) error {
	var errs []error
	for name := range named {
		r := s.known(name)
		if r == nil || stored[name] != nil {
			continue
		}
		log.FromContext(ctx).Info("a Secret that instances need was deleted: it is created again", "secret", name)
		if err := s.client.Create(ctx, s.secret(r.secret.Data[keyContent], r.secret.Data[keySalt]), client.DisableReadYourWritesConsistency); err != nil {
			errs = append(errs, fmt.Errorf("restore the Secret %s/%s: %w", s.namespace, name, err))
		}
	}
	return errors.Join(errs...)
}
