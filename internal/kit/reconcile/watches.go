package reconcile

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Replaced passes the updates that are none: the object was deleted and another one of its
// name was created while a watch was cut off. It may have the same generation.
var Replaced = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool { return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() },
}

// Requests returns requests for the listed resources that which accepts; nil accepts all. The list
// may be slightly out of date, because it does not wait for the operator's own writes. which must
// not change its argument: it is the object in the cache.
func Requests(ctx context.Context, from client.Reader, list client.ObjectList, which func(client.Object) bool, opts ...client.ListOption) []reconcile.Request {
	err := from.List(ctx, list, append(opts, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency)...)
	if err != nil {
		return nil // only a cache that is shutting down fails
	}
	requests := make([]reconcile.Request, 0, meta.LenList(list))
	_ = meta.EachListItem(list, func(item runtime.Object) error { // the function never returns an error
		if o := item.(client.Object); which == nil || which(o) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
		}
		return nil
	})
	return requests
}

// Open opens the watches of kinds without waiting for their objects. A manager waits, before it competes for the
// lease, for the caches that it knows of by then; the controllers name theirs only later.
func Open(ctx context.Context, informers cache.Informers, kinds ...client.Object) error {
	for _, kind := range kinds {
		if _, err := informers.GetInformer(ctx, kind, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("watch %T: %w", kind, err)
		}
	}
	return nil
}
