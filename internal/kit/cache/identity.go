package cache

import (
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// KeepIdentity drops from an object everything but which object it is. A family uses it in its Trim
// for objects that a selector lets in, and that cannot belong to the family: others may set labels,
// on as many and as large objects as they like.
func KeepIdentity(o client.Object) {
	kept := metav1.ObjectMeta{
		Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(),
		ResourceVersion: o.GetResourceVersion(), CreationTimestamp: o.GetCreationTimestamp(), DeletionTimestamp: o.GetDeletionTimestamp(),
	}
	gvk := o.GetObjectKind().GroupVersionKind()
	value := reflect.ValueOf(o).Elem()
	value.SetZero()
	if !gvk.Empty() {
		o.GetObjectKind().SetGroupVersionKind(gvk) // an unstructured object has no other record of its kind
	}
	o.SetNamespace(kept.Namespace)
	o.SetName(kept.Name)
	o.SetUID(kept.UID)
	o.SetResourceVersion(kept.ResourceVersion)
	o.SetCreationTimestamp(kept.CreationTimestamp)
	o.SetDeletionTimestamp(kept.DeletionTimestamp)
}
