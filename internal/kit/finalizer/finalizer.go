// Package finalizer keeps a custom resource until the objects that it owns are gone.
package finalizer

import (
	"context"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/cache"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// Ensure persists a finalizer. It must come before every other write, so that
// no deletion is missed.
func Ensure(ctx context.Context, c client.Client, live client.Reader, obj client.Object, name string) error {
	if controllerutil.ContainsFinalizer(obj, name) {
		return nil
	}
	if err := Complete(ctx, c, live, obj); err != nil {
		return err
	}
	// The patch replaces the whole list. The lock keeps it from removing a finalizer that another client has just added.
	before := obj.DeepCopyObject().(client.Object)
	controllerutil.AddFinalizer(obj, name)
	return c.Patch(ctx, obj, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// Complete gives a cached object all of its finalizers, of which the cache may keep only some. A patch of finalizers sends all of them.
// It lists the object by its name: to watch a kind needs the right to list it, and no right to get it.
func Complete(ctx context.Context, c client.Client, live client.Reader, obj client.Object) error {
	if !cache.FinalizersReduced(obj) {
		return nil
	}
	gvk, err := c.GroupVersionKindFor(obj)
	if err != nil {
		return err
	}
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	if err := live.List(ctx, &list, client.InNamespace(obj.GetNamespace()), client.MatchingFields{metav1.ObjectNameField: obj.GetName()}); err != nil {
		return err
	}
	if len(list.Items) != 1 || list.Items[0].UID != obj.GetUID() || list.Items[0].ResourceVersion != obj.GetResourceVersion() {
		return outcome.ErrConflict // an event follows
	}
	obj.SetFinalizers(list.Items[0].Finalizers)
	return nil
}

// TakenOff selects the updates that remove a finalizer from an object: until it is restored, a
// deletion would leave the objects that it owns behind. The event is the only sign. A reconciliation that follows for another
// reason restores it too, but may come hours later.
func TakenOff(name string) predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return controllerutil.ContainsFinalizer(e.ObjectOld, name) && !controllerutil.ContainsFinalizer(e.ObjectNew, name)
		},
	}
}

// Remover removes finalizers from objects and remembers them until the cache shows it: see
// Done. A removed object cannot be read back, so a client that waits for its own writes does
// not wait for this one. A reconciliation that follows immediately would repeat the removal
// unless it asks Done. The zero value is ready for use.
type Remover struct {
	done sync.Map // types.NamespacedName to types.UID
}

// Done reports whether Remove has removed the finalizer from an object.
func (r *Remover) Done(obj client.Object) bool {
	uid, ok := r.done.Load(client.ObjectKeyFromObject(obj))
	return ok && uid == obj.GetUID()
}

// Remove removes a finalizer from an object. The patch requires the version that was read: another finalizer that was added in
// between is not lost. If the answer is lost, the next attempt finds the object absent, which is no error.
func (r *Remover) Remove(ctx context.Context, c client.Client, live client.Reader, obj client.Object, name string) error {
	if err := Complete(ctx, c, live, obj); err != nil {
		return apply.IgnoreAbsent(err)
	}
	free := obj.DeepCopyObject().(client.Object)
	if !controllerutil.RemoveFinalizer(free, name) {
		return nil
	}
	err := c.Patch(ctx, free,
		client.MergeFromWithOptions(obj, client.MergeFromWithOptimisticLock{}), client.DisableReadYourWritesConsistency)
	if err := apply.IgnoreAbsent(err); err != nil {
		return err
	}
	// The API server does not allow adding a finalizer to an object that is being deleted. It is recorded after the answer: a
	// removal that failed must be repeated.
	r.done.Store(client.ObjectKeyFromObject(obj), obj.GetUID())
	return nil
}

// Forget must be called when the cache no longer shows an object of that name.
func (r *Remover) Forget(key types.NamespacedName) { r.done.Delete(key) }

// HeldBack describes the cause that blocks the deletion of a namespace: the conditions that its
// controller has set, or the finalizers of others after that controller has finished; "" if nothing
// does.
func HeldBack(ns *corev1.Namespace) string {
	if ns.DeletionTimestamp != nil && len(ns.Spec.Finalizers) == 0 && len(ns.Finalizers) > 0 {
		return "it has the finalizers " + conditions.Enumerate(ns.Finalizers)
	}
	var reasons []string
	for _, c := range ns.Status.Conditions {
		if c.Status != corev1.ConditionTrue {
			continue
		}
		switch c.Type {
		case corev1.NamespaceDeletionDiscoveryFailure, corev1.NamespaceDeletionContentFailure,
			corev1.NamespaceDeletionGVParsingFailure, corev1.NamespaceFinalizersRemaining:
			reasons = append(reasons, c.Message)
		}
	}
	return strings.Join(reasons, "; ")
}
