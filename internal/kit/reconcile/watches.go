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
// name was created while a watch was cut off. It may have the same generation. The informer sees one object before the cut and
// one after it, and reports the difference as an update.
var Replaced = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool { return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() },
}

// StatusLost passes the updates with which another program has replaced the status of a resource: the condition Ready is gone. It
// may be an older operator that still runs, or a restore from a backup.
var StatusLost = Updates(func(before, after client.Object) bool {
	return meta.FindStatusCondition(*findConditions(before), ConditionReady) != nil && meta.FindStatusCondition(*findConditions(after), ConditionReady) == nil
})

// Deleted passes the events of objects that are gone, and no others.
var Deleted = predicate.Funcs{
	CreateFunc:  func(event.CreateEvent) bool { return false },
	UpdateFunc:  func(event.UpdateEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
}

// Updates passes the updates of objects that match accepts, and no other events.
func Updates(match func(before, after client.Object) bool) predicate.Funcs {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc:  func(e event.UpdateEvent) bool { return match(e.ObjectOld, e.ObjectNew) },
	}
}

// Requests returns requests for the resources that a cache lists into list and match
// accepts; nil accepts all. They may be a moment old: the list does not wait for
// the operator's own writes. match must not change the object that it gets. It is for events, which must be handled without
// waiting: an informer calls its handlers one after another.
func Requests(ctx context.Context, from client.Reader, list client.ObjectList, match func(client.Object) bool, opts ...client.ListOption) []reconcile.Request {
	err := from.List(ctx, list, append(opts, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency)...)
	if err != nil {
		return nil // only a cache that is shutting down fails
	}
	requests := make([]reconcile.Request, 0, meta.LenList(list))
	_ = meta.EachListItem(list, func(item runtime.Object) error { // the function never returns an error
		if o := item.(client.Object); match == nil || match(o) {
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
