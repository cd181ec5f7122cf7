package operator

import (
	"context"
	"hash/maphash"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
)

// informer is the usual one, which needs less memory here: for what it keeps, for its
// indexes, and while it lists.
type informer struct {
	toolscache.SharedIndexInformer
	lists *lists
	index index
}

// newInformers returns what makes informers that take turns.
func newInformers() func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer {
	turns := make(chan struct{}, listsAtOnce)
	return func(lw toolscache.ListerWatcher, kind runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		return newInformer(&lists{from: toolscache.ToListerWatcherWithContext(lw), turns: turns}, kind, resync, indexers)
	}
}

func newInformer(lists *lists, kind runtime.Object, resync time.Duration, indexers toolscache.Indexers) informer {
	index := index{functions: toolscache.Indexers{}}
	shared := toolscache.NewSharedIndexInformer(&toolscache.ListWatch{
		ListWithContextFunc:  lists.list,
		WatchFuncWithContext: lists.from.WatchWithContext,
	}, kind, resync, index.coarse(indexers))
	index.Indexer = shared.GetIndexer()
	return informer{SharedIndexInformer: shared, lists: lists, index: index}
}

func (i informer) SetTransform(transform toolscache.TransformFunc) error {
	i.lists.transform = transform
	return i.SharedIndexInformer.SetTransform(i.lists.once)
}

func (i informer) GetIndexer() toolscache.Indexer { return i.index }
func (i informer) GetStore() toolscache.Store     { return i.index }

func (i informer) AddIndexers(indexers toolscache.Indexers) error {
	return i.SharedIndexInformer.AddIndexers(i.index.coarse(indexers))
}

func (i informer) AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandler(unpacking{handler})
}

func (i informer) AddEventHandlerWithResyncPeriod(handler toolscache.ResourceEventHandler, period time.Duration) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandlerWithResyncPeriod(unpacking{handler}, period)
}

func (i informer) AddEventHandlerWithOptions(handler toolscache.ResourceEventHandler, options toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandlerWithOptions(unpacking{handler}, options)
}

// unpacking is a handler that is told of objects as they are read.
type unpacking struct {
	handler toolscache.ResourceEventHandler
}

func (u unpacking) OnAdd(object any, initial bool) { u.handler.OnAdd(unpack(object), initial) }

func (u unpacking) OnUpdate(before, after any) { u.handler.OnUpdate(unpack(before), unpack(after)) }

func (u unpacking) OnDelete(object any) {
	if last, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		last.Obj = unpack(last.Obj)
		object = last
	}
	u.handler.OnDelete(unpack(object))
}

const (
	// listsAtOnce is how many kinds are listed at the same time: one is decoded while
	// the API server encodes the other.
	listsAtOnce = 2
	// longestTurn is how long a list waits for others. One that gets no answer is no
	// reason to keep all from being listed.
	longestTurn = 30 * time.Second
)

// lists makes the objects of a list small before the next kind is listed. All kinds at
// once take several times of what is kept of them.
type lists struct {
	from      toolscache.ListerWatcherWithContext
	turns     chan struct{}
	transform toolscache.TransformFunc

	mu sync.Mutex
	// small are the objects of a list that the informer has not taken yet: it
	// transforms what it takes.
	small map[any]struct{}
}

func (l *lists) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	patience := time.NewTimer(longestTurn)
	defer patience.Stop()
	select {
	case l.turns <- struct{}{}:
		defer func() { <-l.turns }()
	case <-patience.C:
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
	if options.Continue == "" {
		l.forget()
	}
	for i := range objects {
		if objects[i], err = l.compact(objects[i]); err != nil {
			return nil, err
		}
	}
	return &internalversion.List{
		ListMeta: metav1.ListMeta{ResourceVersion: about.GetResourceVersion(), Continue: about.GetContinue(), RemainingItemCount: about.GetRemainingItemCount()},
		Items:    objects,
	}, nil
}

// forget drops what is left of a list of which not all came to be taken.
func (l *lists) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.small = nil
}

func (l *lists) compact(object runtime.Object) (runtime.Object, error) {
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
	l.small[small] = struct{}{}
	return small.(runtime.Object), nil
}

// once transforms what comes from a watch; what comes from a list is small already.
func (l *lists) once(object any) (any, error) {
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

// index finds objects by the values that its functions give them. The indexer beneath
// keeps a set for every value, which takes 250 bytes, and most values here have only one
// object of a kind: a namespace, an owner. So many values share a set, and of the objects
// in it those of the value are chosen.
type index struct {
	toolscache.Indexer
	functions toolscache.Indexers
}

// setsOfIndex is how many sets there are: with 10,000 namespaces, each has ten objects.
const setsOfIndex = 1024

var (
	setSeed  = maphash.MakeSeed()
	setNames = func() (names [setsOfIndex]string) {
		for i := range names {
			names[i] = strconv.Itoa(i)
		}
		return names
	}()
)

func setOf(value string) string { return setNames[maphash.String(setSeed, value)%setsOfIndex] }

// coarse returns functions that give objects their sets in place of their values.
func (i index) coarse(indexers toolscache.Indexers) toolscache.Indexers {
	coarse := toolscache.Indexers{}
	for name, function := range indexers {
		i.functions[name] = function
		coarse[name] = func(object any) ([]string, error) {
			values, err := i.values(name, object)
			sets := make([]string, 0, len(values))
			for _, value := range values {
				if set := setOf(value); !slices.Contains(sets, set) {
					sets = append(sets, set)
				}
			}
			return sets, err
		}
	}
	return coarse
}

// values are what a function gives to an object as it is kept.
func (i index) values(name string, object any) ([]string, error) {
	if name != toolscache.NamespaceIndex {
		object = unpack(object)
	}
	return i.functions[name](object)
}

func (i index) GetIndexers() toolscache.Indexers { return i.functions }

func (i index) ByIndex(name, value string) ([]any, error) {
	objects, err := i.kept(name, value)
	return unpackAll(objects), err
}

func (i index) Index(name string, like any) ([]any, error) {
	objects, err := i.Indexer.Index(name, like)
	if err != nil {
		return nil, err
	}
	values, err := i.values(name, like)
	if err != nil {
		return nil, err
	}
	objects, err = i.having(name, objects, values...)
	return unpackAll(objects), err
}

// kept are the objects with a value, as they are kept.
func (i index) kept(name, value string) ([]any, error) {
	objects, err := i.Indexer.ByIndex(name, setOf(value))
	if err != nil {
		return nil, err
	}
	return i.having(name, objects, value)
}

// having chooses the objects that have any of some values.
func (i index) having(name string, objects []any, wanted ...string) ([]any, error) {
	var found []any
	for _, object := range objects {
		values, err := i.values(name, object)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(values, func(value string) bool { return slices.Contains(wanted, value) }) {
			found = append(found, object)
		}
	}
	return found, nil
}

func (i index) IndexKeys(name, value string) ([]string, error) {
	objects, err := i.kept(name, value)
	if err != nil {
		return nil, err
	}
	keys := make([]string, len(objects))
	for n, object := range objects {
		if keys[n], err = toolscache.MetaNamespaceKeyFunc(object); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

func (i index) ListIndexFuncValues(name string) []string {
	var all []string
	for _, object := range i.Indexer.List() {
		values, err := i.values(name, object)
		if err == nil {
			all = append(all, values...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func (i index) List() []any { return unpackAll(i.Indexer.List()) }

func (i index) Get(like any) (any, bool, error) {
	object, exists, err := i.Indexer.Get(like)
	return unpack(object), exists, err
}

func (i index) GetByKey(key string) (any, bool, error) {
	object, exists, err := i.Indexer.GetByKey(key)
	return unpack(object), exists, err
}
