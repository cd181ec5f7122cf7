// Package ownership proves to which custom resource an object belongs.
//
// A namespaced custom resource can own neither a namespace nor an object in
// another namespace: the garbage collector deletes children with such owner
// references. So labels serve to find objects, and an annotation with the UID
// of the custom resource serves as proof: a UID is never used twice, names are.
package ownership

import (
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Proof says how the objects of one custom resource are recognised.
type Proof struct {
	// Annotation is the key under which the UID stands.
	Annotation string
	// UID of the custom resource.
	UID types.UID
	// Labels that must stand beside the UID. Whoever takes one off takes the
	// object away from its custom resource. Nil: the UID alone is the proof.
	Labels map[string]string
}

// Stamp writes the proof to an object that is about to be created.
func (p Proof) Stamp(obj client.Object) {
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[p.Annotation] = string(p.UID)
	obj.SetAnnotations(annotations)
	if len(p.Labels) > 0 {
		labels := obj.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		maps.Copy(labels, p.Labels)
		obj.SetLabels(labels)
	}
}

// Holds reports whether an object carries the proof.
func (p Proof) Holds(obj client.Object) bool {
	if p.UID == "" || obj.GetAnnotations()[p.Annotation] != string(p.UID) {
		return false
	}
	labels := obj.GetLabels()
	for key, want := range p.Labels {
		if got, there := labels[key]; !there || got != want {
			return false
		}
	}
	return true
}

// RefusedError says that an object exists under a name that is needed and does
// not carry the proof. It was not touched.
type RefusedError struct {
	Kind, Namespace, Name string
}

func (e *RefusedError) Error() string {
	where := e.Name
	if e.Namespace != "" {
		where = e.Namespace + "/" + e.Name
	}
	return fmt.Sprintf("%s %s exists and does not carry the proof that it belongs here; it was left untouched: delete or rename it", e.Kind, where)
}
