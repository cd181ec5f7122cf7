package main

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// live follows the instances by a watch.
type live struct {
	mu      sync.Mutex
	all     map[string]*bergv1.ChallengeInstance // by name
	changed chan struct{}                        // closed and replaced at each change
	// doubled are sources that had two instances of a challenge that had not ended.
	doubled map[string]bool
}

func follow(ctx context.Context, rc *rest.Config, o cache.Options) (*live, error) {
	o.DefaultNamespaces = map[string]cache.Config{arena: {}}
	c, err := cache.New(rc, o)
	if err != nil {
		return nil, err
	}
	l := &live{all: map[string]*bergv1.ChallengeInstance{}, changed: make(chan struct{}), doubled: map[string]bool{}}
	informer, err := c.GetInformer(ctx, &bergv1.ChallengeInstance{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, err
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { l.see(o, false) },
		UpdateFunc: func(_, o any) { l.see(o, false) },
		DeleteFunc: func(o any) { l.see(o, true) },
	}); err != nil {
		return nil, err
	}
	go func() { _ = c.Start(ctx) }() // it ends with ctx
	if !c.WaitForCacheSync(ctx) {
		return nil, context.Cause(ctx)
	}
	return l, nil
}

// ended reports whether an instance no longer counts.
func ended(i *bergv1.ChallengeInstance) bool {
	return i.DeletionTimestamp != nil || i.Spec.TerminationReason != ""
}

func (l *live) see(o any, gone bool) {
	if last, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		o = last.Obj
	}
	i, ok := o.(*bergv1.ChallengeInstance)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if gone {
		delete(l.all, i.Name)
	} else {
		l.all[i.Name] = i
	}
	if source := i.Labels[bergv1.LabelSource]; source != "" && l.count(source) > 1 {
		l.doubled[source] = true
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

// count is called with the lock held.
func (l *live) count(source string) (n int) {
	for _, i := range l.all {
		if i.Labels[bergv1.LabelSource] == source && !ended(i) {
			n++
		}
	}
	return n
}

// until waits for a state of the instances.
func (l *live) until(ctx context.Context, what string, reached func(map[string]*bergv1.ChallengeInstance) bool) error {
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	for {
		l.mu.Lock()
		done, changed := reached(l.all), l.changed
		l.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w", what, context.Cause(ctx))
		}
	}
}

func (l *live) running(ctx context.Context, names ...string) error {
	return l.until(ctx, fmt.Sprint(names, " run"), func(all map[string]*bergv1.ChallengeInstance) bool {
		for _, name := range names {
			if all[name] == nil || all[name].Status.Phase != bergv1.PhaseRunning {
				return false
			}
		}
		return true
	})
}

// empty waits until nothing is left.
func (l *live) empty(ctx context.Context) error {
	return l.until(ctx, "all instances are gone", func(all map[string]*bergv1.ChallengeInstance) bool { return len(all) == 0 })
}
