package cache

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/internal/kit/apply"
)

// transform returns what makes objects small before they are kept: it drops what nobody
// looks at, encodes what it can, and interns the rest, because most objects of a kind are
// nearly the same.
//
// What is read from the cache is a copy, and what is in it is never changed, so nobody
// notices.
func (c *Caches) transform(trim func(client.Object)) toolscache.TransformFunc {
	claims := apply.Compact(c.fieldManager)
	return func(o any) (any, error) {
		if _, done := o.(*encoded); done {
			return o, nil // an informer may transform an object twice
		}
		object, ok := o.(client.Object)
		if !ok {
			return o, nil // the last known state of an object that is gone
		}
		if _, err := claims(object); err != nil {
			return nil, err
		}
		// The object once more, as kubectl wrote it, with all that is secret in it.
		if annotations := object.GetAnnotations(); annotations[corev1.LastAppliedConfigAnnotation] != "" {
			delete(annotations, corev1.LastAppliedConfigAnnotation)
			object.SetAnnotations(annotations) // an unstructured object gave a copy
		}
		if trim != nil {
			trim(object)
		}
		kept, err := encode(object)
		if err != nil || kept != object {
			return kept, err
		}
		if _, loose := object.(runtime.Unstructured); loose {
			return object, nil // its values are of no type by which equal ones are found
		}
		// These are interned already, and may be read at this moment.
		managed := object.GetManagedFields()
		object.SetManagedFields(nil)
		c.common.share(object)
		object.SetManagedFields(managed)
		return object, nil
	}
}
