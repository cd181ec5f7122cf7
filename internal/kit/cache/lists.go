package cache

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
)

const (
	// maxLists is how many kinds are listed at the same time: one is decoded while
	// the API server encodes the other.
	maxLists = 2
	// maxListWait is how long a list waits for a slot. A list without an answer must not
	// block all others.
	maxListWait = 30 * time.Second
)

// lists makes the objects of a list small before the next kind is listed. The lists of all kinds
// together take several times as much memory as the kept objects.
type lists struct {
	from      toolscache.ListerWatcherWithContext
	slots     chan struct{}
	transform toolscache.TransformFunc

	mu sync.Mutex
	// small are the transformed objects of a list that the informer has not stored yet. It
	// would transform them again.
	small map[any]struct{}
}

// list waits for a slot, so that only a few kinds are in memory in full at the same time. It waits no longer than
// maxListWait: a slow list of one kind must not keep the caches of all others from starting.
func (l *lists) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	timeout := time.NewTimer(maxListWait)
	defer timeout.Stop()
	select {
	case l.slots <- struct{}{}:
		defer func() { <-l.slots }()
		// Without a slot, which the deferred call must therefore not free.
	case <-timeout.C:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	all, err := l.from.ListWithContext(ctx, options)
	if err != nil {
		return nil, err
	}
	about, err := meta.ListAccessor(all)
	if err != nil {
		return nil, err
	}
	objects, err := meta.ExtractListWithAlloc(all)
	if err != nil {
		return nil, err
	}
	// The first page starts a new list. The informer may have dropped an earlier one without storing its objects.
	if options.Continue == "" {
		l.forget()
	}
	for i := range objects {
		if objects[i], err = l.trim(objects[i]); err != nil {
			return nil, err
		}
	}
	return &internalversion.List{
		ListMeta: metav1.ListMeta{ResourceVersion: about.GetResourceVersion(), Continue: about.GetContinue(), RemainingItemCount: about.GetRemainingItemCount()},
		Items:    objects,
	}, nil
}

// forget drops the rest of a list that the informer has not stored completely.
func (l *lists) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.small = nil
}

// trim trims an object of a list before the store gets it, and notes that it is done: the store calls the transform once more.
func (l *lists) trim(object runtime.Object) (runtime.Object, error) {
	if l.transform == nil {
		return object, nil
	}
	small, err := l.transform(object)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.small == nil {
		l.small = map[any]struct{}{}
	}
	// It is found by its pointer. A map of values would compare whole objects.
	l.small[small] = struct{}{}
	return small.(runtime.Object), nil
}

// once transforms objects of a watch; objects of a list are small already.
func (l *lists) once(object any) (any, error) {
	// The informer passes the pointers that list returned: these objects must not be transformed again.
	l.mu.Lock()
	_, done := l.small[object]
	delete(l.small, object)
	if len(l.small) == 0 {
		l.small = nil
	}
	l.mu.Unlock()
	if done || l.transform == nil {
		return object, nil
	}
	return l.transform(object)
}
