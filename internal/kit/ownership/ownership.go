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

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Marks are how the objects of one Kind of custom resource are found and proved. A
// family declares them once: its caches select by what finds, its plans and its checks
// use what proves.
type Labels struct {
	// Domain begins the keys of the family's annotations, as in example.com.
	Domain string
	// Owner is the Kind of the custom resource in a word, as in instance: its UID stands
	// in the annotation <Domain>/<Owner>-uid.
	Owner string
	// Found are labels of every object, by which caches and lists find it. They are put
	// back when somebody takes them off: they prove nothing.
	Found map[string]string
}

// Annotation is the key under which the UID of the custom resource stands.
func (m Labels) Annotation() string { return m.Domain + "/" + m.Owner + "-uid" }

// Selector finds the objects of all custom resources of the Kind.
func (m Labels) Selector() labels.Selector { return labels.SelectorFromSet(m.Found) }

// Proof is that of one custom resource. agreeing are labels that must stand beside the
// UID: whoever changes one takes the object away from the custom resource. Nil: the UID
// alone is the proof.
func (m Labels) For(uid types.UID, agreeing map[string]string) Owner {
	return Owner{Annotation: m.Annotation(), UID: uid, Found: m.Found, Labels: agreeing}
}

// Owner says how the objects of one custom resource are recognised.
type Owner struct {
	// Annotation is the key under which the UID stands.
	Annotation string
	// UID of the custom resource. An empty one proves nothing.
	UID types.UID
	// Found are labels that are written beside it, and that no proof needs.
	Found map[string]string
	// Labels that must stand beside the UID. Whoever takes one off takes the
	// object away from its custom resource. Nil: the UID alone is the proof.
	Labels map[string]string
}

// SetOn writes the proof, and the labels to find by, to an object that is about to be
// written. Where a label is in both, the proof's counts.
func (p Owner) SetOn(obj client.Object) {
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[p.Annotation] = string(p.UID)
	obj.SetAnnotations(annotations)
	if len(p.Found)+len(p.Labels) > 0 {
		all := obj.GetLabels()
		if all == nil {
			all = map[string]string{}
		}
		maps.Copy(all, p.Found)
		maps.Copy(all, p.Labels)
		obj.SetLabels(all)
	}
}

// Owns reports whether an object carries the proof.
func (p Owner) Owns(obj client.Object) bool {
	if p.UID == "" || obj.GetAnnotations()[p.Annotation] != string(p.UID) {
		return false
	}
	has := obj.GetLabels()
	for key, want := range p.Labels {
		if got, there := has[key]; !there || got != want {
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
