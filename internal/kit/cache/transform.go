package cache

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/internal/kit/apply"
)

// transform returns a function that makes objects small before they are cached. It drops fields
// that are not read, encodes objects of known kinds, and interns the rest, because most objects of
// a kind are nearly the same.
//
// Readers get copies and cached objects are never changed, so that sharing parts is safe.
func (c *Caches) transform(options Options) toolscache.TransformFunc {
	trim, domains := options.Trim, options.Domains
	compact := apply.Compact(c.fieldManager)
	return func(o any) (any, error) {
		if _, done := o.(*encoded); done {
			return o, nil // an informer may transform an object twice
		}
		object, ok := o.(client.Object)
		if !ok {
			return o, nil // the last known state of an object that is gone
		}
		if _, err := compact(object); err != nil {
			return nil, err
		}
		// A second copy of the object, as kubectl wrote it, with all its secrets.
		if annotations := object.GetAnnotations(); annotations[corev1.LastAppliedConfigAnnotation] != "" {
			delete(annotations, corev1.LastAppliedConfigAnnotation)
			object.SetAnnotations(annotations) // an unstructured object gave a copy
		}
		if trim != nil {
			trim(object)
		}
		if u, loose := object.(*unstructured.Unstructured); loose && tooLarge(u, domains, jsonSize) {
			reduce(object, domains)
		}
		kept, err := encode(object)
		if small, ok := kept.(*encoded); ok && err == nil && tooLarge(object, domains, func(client.Object) int { return len(small.data) }) {
			reduce(object, domains)
			kept, err = encode(object)
		}
		if err != nil || kept != object {
			return kept, err
		}
		if _, loose := object.(runtime.Unstructured); loose {
			return object, nil // values of its types cannot be compared for equality
		}
		if len(domains) > 0 {
			boundMetadata(object, domains, options.Finalizers)
		}
		// These are interned already, and may be read concurrently.
		managed := object.GetManagedFields()
		object.SetManagedFields(nil)
		c.common.share(object)
		object.SetManagedFields(managed)
		return object, nil
	}
}
