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

// Change is a change of an instance. Gone instances have the last state that was seen.
type Change struct {
	Instance *bergv1.ChallengeInstance
	Gone     bool
}

// Follower receives the changes of instances.
type Follower struct {
	// Changed is called for every existing instance and then for each change, never concurrently. It
	// ends Follow by returning true or an error.
	Changed func(Change) (done bool, err error)
	// Synced is called after Changed was called for all existing instances. Optional.
	Synced func() (done bool, err error)
	// Lost is called with an error when the connection is lost, and with nil when it is back. Optional.
	Lost func(err error)
	// Timeout limits the time until the first connection; default firstTimeout.
	Timeout time.Duration
}

// firstTimeout is long enough for a short outage, and short enough after a mistyped address.
const firstTimeout = 5 * time.Second

// retryBackoff is the backoff between attempts to reach the API server.
func retryBackoff() wait.Backoff {
	return wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 8, Cap: 5 * time.Second}
}

// Follow reports changes of instances until its context or the follower ends it. It restores a lost connection; a new
// list then yields the changes in between, including deletions. Several changes of one instance during the gap appear
// as one. Without a first connection it returns an error after the follower's Timeout.
func (c *Cluster) Follow(ctx context.Context, f Follower, opts ...client.ListOption) error {
	known := map[types.UID]*bergv1.ChallengeInstance{}
	backoff, lost := retryBackoff(), false
	first, began := true, c.clock.Now()
	for {
		all, version, err := c.Instances(ctx, opts...)
		if err == nil {
			if lost && f.Lost != nil {
				f.Lost(nil)
			}
			backoff, lost = retryBackoff(), false
			if done, err := reportList(f, known, all, first); done || err != nil {
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
			// A version that the API server no longer has is no failure: the next list has a newer one.
		case err != nil && !Transient(err) && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err):
			return err
		case err != nil && Transient(err) && !lost:
			lost = true
			if f.Lost != nil {
				f.Lost(err)
			}
		}
		// Also then there is a delay, for an API server that ends every watch immediately.
		delay := 50 * time.Millisecond // a watch that ended as usual
		if lost {
			delay = backoff.Step()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(delay):
		}
	}
}

// reportList reports the differences between a list and the known instances. An instance of the same name with another
// UID is a new one, and the old one is reported as gone.
func reportList(f Follower, known map[types.UID]*bergv1.ChallengeInstance, all []bergv1.ChallengeInstance, first bool) (done bool, err error) {
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
	if first && f.Synced != nil {
		return f.Synced()
	}
	return false, nil
}

// watch reports changes until the connection ends; done reports that the follower has ended it. It keeps known current,
// so that the next list yields only the changes that the watch has missed.
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
