package cluster

import (
	"cmp"
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// Change is what Follow tells of an instance.
type Change struct {
	Instance *bergv1.ChallengeInstance
	Gone     bool
}

// Follower is told what happens to instances.
type Follower struct {
	// Changed is called for every instance at the beginning and for each change from then on,
	// one after the other; it ends Follow by returning true or an error.
	Changed func(Change) (done bool, err error)
	// Begun is called when all that exist at the beginning were told. Optional.
	Begun func() (done bool, err error)
	// Lost is called when the connection is lost, and with nil when it is there again.
	// Optional.
	Lost func(err error)
	// Timeout is for how long the API server may not be reached at the beginning, before anything
	// was told; default firstPatience.
	Timeout time.Duration
}

// firstTimeout is enough for a hiccup, and short for who mistyped the address of a cluster.
const firstTimeout = 5 * time.Second

// pauses are those between attempts to reach an API server that cannot be reached.
func pauses() wait.Backoff {
	return wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 8, Cap: 5 * time.Second}
}

// Follow tells of instances until its context ends or it is told to stop. A
// connection that is lost is made again, and what happened meanwhile is told then. One that was
// never there is an error after the follower's patience.
func (c *Cluster) Follow(ctx context.Context, f Follower, opts ...client.ListOption) error {
	known := map[types.UID]*bergv1.ChallengeInstance{}
	backoff, lost := pauses(), false
	first, began := true, c.clock.Now()
	for {
		all, version, err := c.Instances(ctx, opts...)
		if err == nil {
			if lost && f.Lost != nil {
				f.Lost(nil)
			}
			backoff, lost = pauses(), false
			if done, err := tell(f, known, all, first); done || err != nil {
				return err
			}
			first = false
			var done bool
			if done, err = c.watch(ctx, f, known, version, opts...); done {
				return err
			}
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case first && Transient(err) && c.clock.Since(began) >= cmp.Or(f.Timeout, firstTimeout):
			return err
		case err != nil && !Transient(err) && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err):
			return err
		case err != nil && Transient(err) && !lost:
			lost = true
			if f.Lost != nil {
				f.Lost(err)
			}
		}
		pause := 50 * time.Millisecond // a watch that ended as watches do
		if lost {
			pause = backoff.Step()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// tell tells what a list says and was not known.
func tell(f Follower, known map[types.UID]*bergv1.ChallengeInstance, all []bergv1.ChallengeInstance, first bool) (done bool, err error) {
	here := map[types.UID]bool{}
	for i := range all {
		instance := &all[i]
		here[instance.UID] = true
		if old := known[instance.UID]; old != nil && old.ResourceVersion == instance.ResourceVersion {
			continue
		}
		known[instance.UID] = instance
		if done, err := f.Changed(Change{Instance: instance}); done || err != nil {
			return done, err
		}
	}
	for uid, instance := range known {
		if here[uid] {
			continue
		}
		delete(known, uid)
		if done, err := f.Changed(Change{Instance: instance, Gone: true}); done || err != nil {
			return done, err
		}
	}
	if first && f.Begun != nil {
		return f.Begun()
	}
	return false, nil
}

// watch tells of changes until the connection ends; done says that the follower has enough.
func (c *Cluster) watch(ctx context.Context, f Follower, known map[types.UID]*bergv1.ChallengeInstance, version string, opts ...client.ListOption) (done bool, err error) {
	options := client.ListOptions{}
	options.ApplyOptions(opts)
	raw := options.AsListOptions()
	raw.ResourceVersion, raw.AllowWatchBookmarks = version, true
	options.Raw = raw
	stream, err := c.Watch(ctx, &bergv1.ChallengeInstanceList{}, &options)
	if err != nil {
		return false, err
	}
	defer stream.Stop()
	for event := range stream.ResultChan() {
		if event.Type == watch.Error {
			return false, apierrors.FromObject(event.Object)
		}
		instance, ok := event.Object.(*bergv1.ChallengeInstance)
		if !ok || event.Type == watch.Bookmark {
			continue
		}
		known[instance.UID] = instance
		if event.Type == watch.Deleted {
			delete(known, instance.UID)
		}
		if done, err := f.Changed(Change{Instance: instance, Gone: event.Type == watch.Deleted}); done || err != nil {
			return true, err
		}
	}
	return false, nil
}
