package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// parallelRequests is how many of our own requests are in flight at most.
const parallelRequests = 100

// batch is the instances that one of the two deals with in one go.
type batch struct {
	*bench
	who   string
	name  string
	lives []*life
}

func (b *bench) newBatch(who string) *batch {
	b.numbered++
	return &batch{bench: b, who: who, name: fmt.Sprintf("batch-%d", b.numbered)}
}

// next makes up an instance of a Challenge that is going to be created.
func (r *batch) next(challenge string) *life {
	owner := uuid.NewString()
	l := &life{
		challenge: challenge,
		key:       types.NamespacedName{Namespace: arena, Name: fmt.Sprintf("%s-%d", r.name, len(r.lives))},
		owner:     owner,
		namespace: "challenge-" + owner,
	}
	r.lives = append(r.lives, l)
	r.tracker.expect(l)
	return l
}

// create creates instances concurrently, and lets the bare client build them when it is
// measured.
func (r *batch) create(ctx context.Context, n int, timeout string) error {
	lives := make([]*life, n)
	for i := range lives {
		lives[i] = r.next(challengeName)
	}
	return inParallel(parallelRequests, lives, func(l *life) error { return r.createOne(ctx, l, timeout) })
}

func (r *batch) createOne(ctx context.Context, l *life, timeout string) error {
	instance := &bergv1.ChallengeInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: l.key.Namespace, Name: l.key.Name},
		Spec: bergv1.ChallengeInstanceSpec{
			ChallengeRef: bergv1.ChallengeReference{Name: l.challenge, Namespace: arena},
			OwnerID:      l.owner,
			Flag:         "flag{" + l.owner + "}",
			Timeout:      timeout,
		},
	}
	sent := time.Now()
	if err := r.client.Create(ctx, instance); err != nil {
		return fmt.Errorf("create an instance: %w", err)
	}
	r.tracker.set(func() { l.sent, l.created = sent, time.Now() })
	if r.who != theBare {
		return nil
	}
	i, err := r.bare.prepare(l, instance)
	if err != nil {
		return err
	}
	r.bare.build.add(func(ctx context.Context) error { return r.bare.start(ctx, i) })
	return nil
}

// start creates instances concurrently, and waits until they run.
func (r *batch) start(ctx context.Context, n int) error {
	if err := r.create(ctx, n, long); err != nil {
		return err
	}
	return r.await(ctx, "Running", n, reachedRunning)
}

// delete deletes all instances of the round that are still there, and lets the bare
// client take them down when it is its turn.
func (r *batch) delete(ctx context.Context) error {
	return inParallel(parallelRequests, r.lives, func(l *life) error {
		live := false
		r.tracker.set(func() { live = l.ending.IsZero() })
		if !live {
			return nil
		}
		instance := &bergv1.ChallengeInstance{ObjectMeta: metav1.ObjectMeta{Namespace: l.key.Namespace, Name: l.key.Name}}
		switch err := r.client.Delete(ctx, instance); {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return fmt.Errorf("delete an instance: %w", err)
		}
		r.tracker.set(func() { l.deleted = time.Now() })
		if r.who == theBare {
			r.bare.later(l.namespace, r.bare.build.add, r.bare.end)
		}
		return nil
	})
}

// await waits until n instances have reached a state.
func (r *batch) await(ctx context.Context, state string, n int, reached func(*life) bool) error {
	have := 0
	err := r.until(ctx, poll, func() (bool, error) {
		have = r.count(reached)
		r.show.say("%s, %s: %d of %d %s", r.who, r.name, have, n, state)
		return have >= n, nil
	})
	if err != nil {
		return fmt.Errorf("%s: %d of %d instances are %s: %w", r.who, have, n, state, err)
	}
	return nil
}

// until looks at each interval until it is done, and no longer than what is measured works.
func (r *batch) until(ctx context.Context, interval time.Duration, look func() (done bool, err error)) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		if done, err := look(); done || err != nil {
			return err
		}
		if r.who == theBare {
			if err := r.bare.failed(); err != nil {
				return err
			}
		}
		var ended <-chan struct{} // nil blocks
		if r.who == theOperator {
			ended = r.operator.Exited()
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ended:
			return fmt.Errorf("it has ended by itself\n%s", r.operator.Tail())
		case <-ticker.C:
		}
	}
}

func (r *batch) count(reached func(*life) bool) int {
	r.tracker.mu.Lock()
	defer r.tracker.mu.Unlock()
	n := 0
	for _, l := range r.lives {
		if reached(l) {
			n++
		}
	}
	return n
}

// clear deletes what is left, and waits until it is gone.
func (r *batch) clear(ctx context.Context) error {
	if err := r.delete(ctx); err != nil {
		return err
	}
	return r.await(ctx, "gone", len(r.lives), reachedGone)
}

// mark makes a request that stands out in the audit log, and returns where the log
// ends with it: everything that was answered before stands before.
func (b *bench) mark(ctx context.Context) (int64, error) {
	from, err := b.audit.end()
	if err != nil {
		return 0, err
	}
	name := "mark-" + uuid.NewString()
	err = b.client.Get(ctx, client.ObjectKey{Namespace: arena, Name: name}, &corev1.ConfigMap{})
	if client.IgnoreNotFound(err) != nil {
		return 0, err
	}
	var at int64
	err = eventually(ctx, func(context.Context) error {
		at, err = b.audit.find(from, name)
		return err
	})
	return at, err
}

// inParallel calls f for all, at most limit concurrently, and returns the first errors.
func inParallel[T any](limit int, all []T, f func(T) error) error {
	var mu sync.Mutex
	var errs []error
	var calls sync.WaitGroup
	slots := make(chan struct{}, limit)
	for _, one := range all {
		slots <- struct{}{}
		calls.Go(func() {
			defer func() { <-slots }()
			if err := f(one); err != nil {
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
			}
		})
	}
	calls.Wait()
	return errors.Join(errs[:min(len(errs), 3)]...)
}
