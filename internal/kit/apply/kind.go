package apply

import (
	"fmt"
	"maps"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Objects are typed, of a Kind in the client's scheme, or unstructured. Unstructured objects
// name their Kind themselves and hold JSON values as the API machinery decodes them, numbers
// as int64 or float64.

// objectKind returns the Kind of an object, or its Go type if the scheme does not know it.
func objectKind(scheme *runtime.Scheme, obj client.Object) schema.GroupKind {
	gvk, err := apiutil.GVKForObject(obj, scheme)
	if err != nil {
		return schema.GroupKind{Kind: fmt.Sprintf("%T", obj)}
	}
	return gvk.GroupKind()
}

// blank returns an empty object of the same Kind, to be read into.
func blank[T client.Object](like T) T {
	if u, ok := any(like).(*unstructured.Unstructured); ok {
		empty := &unstructured.Unstructured{}
		empty.SetGroupVersionKind(u.GroupVersionKind())
		return any(empty).(T)
	}
	return reflect.New(reflect.TypeOf(like).Elem()).Interface().(T)
}

// newList returns an empty list of objects of the same Kind.
func newList(scheme *runtime.Scheme, like client.Object) (client.ObjectList, error) {
	gvk, err := apiutil.GVKForObject(like, scheme)
	if err != nil {
		return nil, err
	}
	gvk.Kind += "List"
	made, err := scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	list, ok := made.(client.ObjectList)
	if !ok {
		return nil, fmt.Errorf("%s is no list", gvk)
	}
	return list, nil
}

// notContent are the Go fields of an object that are not its content.
var notContent = []string{"TypeMeta", "ObjectMeta", "Status"}

// contentMap returns the content of an unstructured object. The values are shared with the
// object.
func contentMap(obj runtime.Unstructured) map[string]any {
	bare := maps.Clone(obj.UnstructuredContent())
	for _, key := range []string{"apiVersion", "kind", "metadata", "status"} {
		delete(bare, key)
	}
	return bare
}

// keepStatus gives an unstructured object the status of another one, if it has none.
func keepStatus(obj, source *unstructured.Unstructured) {
	status, there := source.Object["status"]
	if _, present := obj.Object["status"]; there && !present {
		obj.Object["status"] = runtime.DeepCopyJSONValue(status)
	}
}

// confining are the kinds that restrict pods. While such an object is missing, its pods reach everything, so its
// repair is never delayed.
var confining = map[schema.GroupKind]bool{
	{Group: "networking.k8s.io", Kind: "NetworkPolicy"}: true,
	{Group: "cilium.io", Kind: "CiliumNetworkPolicy"}:   true,
}

// confines reports whether an object is of a confining kind, without a scheme.
func confines(o client.Object) bool {
	name := o.GetObjectKind().GroupVersionKind().Kind
	if name == "" {
		name = reflect.TypeOf(o).Elem().Name()
	}
	for kind := range confining {
		if kind.Kind == name {
			return true
		}
	}
	return false
}
