// Package apply brings objects into the state that a plan wants: it creates
// what is missing, updates what differs, deletes what is no longer wanted,
// leaves alone what is already right, and refuses what is not provably ours.
package apply

import (
	"context"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

// Writer writes objects. Its Client must read from a cache that waits for the
// client's own writes, or from the API server: a stale read would write twice.
type Writer struct {
	Client client.Client
	// Live reads from the API server. It is asked only when a create meets an
	// object that the cache does not know.
	Live client.Reader
}

// TerminatingError says that an object is wanted while it is being deleted. Its
// deletion event is the moment to try again.
type TerminatingError struct {
	Kind, Name string
}

func (e *TerminatingError) Error() string {
	return fmt.Sprintf("%s %s is being deleted and will be created again", e.Kind, e.Name)
}

// Apply makes one object what it should be and returns it as the API server
// has it. An object that is already right costs no request.
//
// It returns an *ownership.RefusedError for an object without our proof, a
// *TerminatingError for one that is being deleted, or the API server's error.
func Apply[T client.Object](ctx context.Context, w Writer, proof ownership.Proof, desired T) (T, error) {
	var none T
	proof.Stamp(desired)
	live := reflect.New(reflect.TypeOf(desired).Elem()).Interface().(T)
	key := client.ObjectKeyFromObject(desired)

	err := w.Client.Get(ctx, key, live)
	if apierrors.IsNotFound(err) {
		created := desired.DeepCopyObject().(T)
		err = w.Client.Create(ctx, created)
		if err == nil {
			log.FromContext(ctx).V(2).Info("created", "kind", kindOf(w.Client.Scheme(), desired), "object", key)
			return created, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return none, err
		}
		// The cache does not show it: either it is foreign and filtered out, or
		// another process wrote it a moment ago.
		err = w.Live.Get(ctx, key, live)
	}
	if err != nil {
		return none, err
	}

	if !proof.Holds(live) {
		return none, &ownership.RefusedError{Kind: kindOf(w.Client.Scheme(), desired), Namespace: key.Namespace, Name: key.Name}
	}
	if live.GetDeletionTimestamp() != nil {
		return none, &TerminatingError{Kind: kindOf(w.Client.Scheme(), desired), Name: key.Name}
	}
	if Covers(desired, live) {
		return live, nil
	}

	updated := desired.DeepCopyObject().(T)
	updated.SetResourceVersion(live.GetResourceVersion())
	updated.SetUID(live.GetUID())
	updated.SetLabels(merged(live.GetLabels(), desired.GetLabels()))
	updated.SetAnnotations(merged(live.GetAnnotations(), desired.GetAnnotations()))
	updated.SetFinalizers(live.GetFinalizers())
	updated.SetOwnerReferences(live.GetOwnerReferences())
	if err := w.Client.Update(ctx, updated); err != nil {
		return none, err
	}
	log.FromContext(ctx).V(2).Info("updated", "kind", kindOf(w.Client.Scheme(), desired), "object", key)
	return updated, nil
}

// Prune deletes the objects of a list that carry the proof and are not wanted.
// wanted is asked with each object's name. Of a kind that the API server does
// not know there are none.
func Prune(ctx context.Context, w Writer, proof ownership.Proof, list client.ObjectList, namespace string, wanted func(name string) bool) error {
	// Our own recent writes are all wanted: no need to wait for them.
	err := w.Client.List(ctx, list, client.InNamespace(namespace), client.DisableReadYourWritesConsistency)
	if meta.IsNoMatchError(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return meta.EachListItem(list, func(item runtime.Object) error {
		obj := item.(client.Object)
		if wanted(obj.GetName()) || !proof.Holds(obj) || obj.GetDeletionTimestamp() != nil {
			return nil
		}
		if err := Delete(ctx, w.Client, obj); err != nil {
			return err
		}
		log.FromContext(ctx).V(2).Info("pruned", "kind", kindOf(w.Client.Scheme(), obj), "object", client.ObjectKeyFromObject(obj))
		return nil
	})
}

// Delete deletes exactly the object that was observed, not a successor of the
// same name. An object that is gone, or was replaced, is no error.
func Delete(ctx context.Context, c client.Client, obj client.Object, opts ...client.DeleteOption) error {
	err := c.Delete(ctx, obj, append(opts,
		client.Preconditions{UID: ptr.To(obj.GetUID())},
		client.PropagationPolicy(metav1.DeletePropagationBackground))...)
	if apierrors.IsConflict(err) {
		return nil
	}
	return client.IgnoreNotFound(err)
}

func merged(base, over map[string]string) map[string]string {
	out := make(map[string]string, len(base)+len(over))
	for k, v := range base {
		out[k] = v
	}
	for k, v := range over {
		out[k] = v
	}
	return out
}

func kindOf(scheme *runtime.Scheme, obj client.Object) string {
	gvk, err := apiutil.GVKForObject(obj, scheme)
	if err != nil {
		return fmt.Sprintf("%T", obj)
	}
	return gvk.Kind
}
