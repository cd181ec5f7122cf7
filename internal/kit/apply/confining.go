package apply

import (
	"reflect"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

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
