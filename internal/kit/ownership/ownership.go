// Package ownership proves to which custom resource an object belongs.
//
// A namespaced custom resource can own neither a namespace nor an object in
// another namespace: the garbage collector deletes children with such owner
// references. So labels serve to find objects, and an annotation with the UID
// of the custom resource serves as proof: a UID is never used twice, names are.
package ownership

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Proof says how the objects of one custom resource are recognised.
type Proof struct {
	// Annotation is the key under which the UID stands.
	Annotation string
	// UID of the custom resource.
	UID types.UID
}

// Stamp writes the proof to an object that is about to be created.
func (p Proof) Stamp(obj client.Object) {
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[p.Annotation] = string(p.UID)
	obj.SetAnnotations(annotations)
}

// Holds reports whether an object carries the proof.
func (p Proof) Holds(obj client.Object) bool {
	return p.UID != "" && obj.GetAnnotations()[p.Annotation] == string(p.UID)
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
	return fmt.Sprintf("%s %s exists and does not belong to this instance; it was left untouched: delete or rename it", e.Kind, where)
}
