package apply

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

// Prune deletes the owned objects of a list that are not wanted. isWanted is called with each
// object's name and namespace. A kind that the API server does not know has no objects.
func Prune(ctx context.Context, w Writer, owner ownership.Owner, list client.ObjectList, namespace string, isWanted func(types.NamespacedName) bool) error {
	// Our own recent writes are all wanted: no need to wait for them.
	if err := w.Client.List(ctx, list, client.InNamespace(namespace), client.DisableReadYourWritesConsistency); err != nil {
		return ignoreKindUnknown(err)
	}
	return deleteUnwanted(ctx, w, owner, list, isWanted)
}

// Sweep deletes all owned objects of a list in a namespace that is gone. The cache may not know
// yet that they are gone too. So if it shows any, the API server is asked before anything is
// deleted.
func Sweep(ctx context.Context, w Writer, owner ownership.Owner, list client.ObjectList, namespace string) error {
	err := w.Client.List(ctx, list, client.InNamespace(namespace), client.DisableReadYourWritesConsistency)
	if err != nil || meta.LenList(list) == 0 {
		return ignoreKindUnknown(err)
	}
	// The API server may no longer know the kind, if its API is being removed.
	if err := w.Live.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return ignoreKindUnknown(err)
	}
	return deleteUnwanted(ctx, w, owner, list, func(types.NamespacedName) bool { return false })
}

// deleteUnwanted deletes the owned objects of a list that are not wanted. It checks the owner of each object,
// because a list by labels also contains objects whose labels others have copied.
func deleteUnwanted(ctx context.Context, w Writer, owner ownership.Owner, list client.ObjectList, isWanted func(types.NamespacedName) bool) error {
	return meta.EachListItem(list, func(item runtime.Object) error {
		obj := item.(client.Object)
		if isWanted(client.ObjectKeyFromObject(obj)) || !owner.Owns(obj) || obj.GetDeletionTimestamp() != nil {
			return nil
		}
		if err := ignoreKindUnknown(Delete(ctx, w.Client, obj)); err != nil {
			return err
		}
		kind, key := objectKind(w.Client.Scheme(), obj), client.ObjectKeyFromObject(obj)
		w.DriftBackoff.pruned(object{kind, key, owner.UID})
		log.FromContext(ctx).V(2).Info("pruned", "kind", kind.Kind, "object", key)
		return nil
	})
}

// Delete deletes exactly the observed object, not a successor of the same name. An object
// that is gone is no error. After a conflict the caller must read the object again: the API
// server does not say whether it was replaced, is already being deleted, or was only
// written at the same time. The background policy is explicit: the default of a kind may be to orphan what the object owns. The
// finalizer of a foreground deletion would keep the name taken until everything below it is gone.
func Delete(ctx context.Context, c client.Client, obj client.Object, opts ...client.DeleteOption) error {
	err := c.Delete(ctx, obj, append(opts,
		client.Preconditions{UID: ptr.To(obj.GetUID())},
		client.PropagationPolicy(metav1.DeletePropagationBackground))...)
	return IgnoreAbsent(err)
}

// DeleteUnchanged is Delete for the version of the object that was observed: a write of another client prevents the deletion. It
// is for a decision that a concurrent write reverses, such as a claim. A plain Delete would win over that write.
func DeleteUnchanged(ctx context.Context, c client.Client, obj client.Object) error {
	return IgnoreAbsent(c.Delete(ctx, obj,
		client.Preconditions{UID: ptr.To(obj.GetUID()), ResourceVersion: ptr.To(obj.GetResourceVersion())},
		client.PropagationPolicy(metav1.DeletePropagationBackground)))
}

// ignoreKindUnknown returns nil for an unknown kind: it has no objects.
func ignoreKindUnknown(err error) error {
	if meta.IsNoMatchError(err) || KindUnknown(err) {
		return nil
	}
	return err
}
