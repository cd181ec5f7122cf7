package cache

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
)

// informer is client-go's with less memory: for its objects, for its indexes, and while
// it lists.
type informer struct {
	toolscache.SharedIndexInformer
	lists *lists
	index index
}

// newInformers returns a constructor of informers that share the slots for lists.
func newInformers(slots chan struct{}) func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer {
	return func(lw toolscache.ListerWatcher, kind runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		return newInformer(&lists{from: toolscache.ToListerWatcherWithContext(lw), slots: slots}, kind, resync, indexers)
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
	// client-go transforms each object when it stores it, also those of a list.
	return i.SharedIndexInformer.SetTransform(i.lists.once)
}

func (i informer) GetIndexer() toolscache.Indexer { return i.index }
func (i informer) GetStore() toolscache.Store     { return i.index }

func (i informer) AddIndexers(indexers toolscache.Indexers) error {
	return i.SharedIndexInformer.AddIndexers(i.index.coarse(indexers))
}

// AddEventHandler is overridden in every variant: a handler that is added through another one would get encoded objects.
func (i informer) AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandler(decoding{handler})
}

func (i informer) AddEventHandlerWithResyncPeriod(handler toolscache.ResourceEventHandler, period time.Duration) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandlerWithResyncPeriod(decoding{handler}, period)
}

func (i informer) AddEventHandlerWithOptions(handler toolscache.ResourceEventHandler, options toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandlerWithOptions(decoding{handler}, options)
}

// decoding is a handler that gets decoded objects.
type decoding struct {
	handler toolscache.ResourceEventHandler
}

func (u decoding) OnAdd(object any, initial bool) { u.handler.OnAdd(decode(object), initial) }

// OnUpdate decodes for each handler, so handlers of one informer may not compare pointers.
func (u decoding) OnUpdate(before, after any) { u.handler.OnUpdate(decode(before), decode(after)) }

func (u decoding) OnDelete(object any) {
	if last, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		last.Obj = decode(last.Obj)
		object = last
	}
	u.handler.OnDelete(decode(object))
}
