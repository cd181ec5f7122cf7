// Package ownership records which custom resource owns an object.
//
// A namespaced custom resource can own neither a namespace nor an object in another namespace: the
// garbage collector deletes children with such owner references. So labels serve to find objects,
// and an annotation with the UID of the custom resource identifies the owner: a UID is never used
// twice, names are. A user who may write in a namespace can copy both. An object that others could
// create first needs a Token.
package ownership

import (
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Labels are the labels and the annotation of all objects that one Kind of custom resource
// owns. A family declares them once: its caches select by Found, its plans and its checks
// use the owner UID.
type Labels struct {
	// Domain begins the keys of the family's annotations, as in example.com.
	Domain string
	// Owner is the Kind of the custom resource in a word, as in instance: its UID is in the
	// annotation <Domain>/<Owner>-uid.
	Owner string
	// Found are labels of every object, by which caches and lists find it. They are restored when they
	// are removed, and do not decide ownership.
	Found map[string]string
}

// Annotation is the key of the annotation with the UID of the custom resource.
func (m Labels) Annotation() string { return m.Domain + "/" + m.Owner + "-uid" }

// Selector finds the objects of all custom resources of the Kind.
func (m Labels) Selector() labels.Selector { return labels.SelectorFromSet(m.Found) }

// For returns the Owner for one custom resource. agreeing are labels that an object must have in
// addition to the UID: a change of one of them ends the ownership. Nil: the UID alone decides
// ownership.
func (m Labels) For(uid types.UID, agreeing map[string]string) Owner {
	return Owner{Annotation: m.Annotation(), UID: uid, Found: m.Found, Labels: agreeing}
}

// Owner identifies the objects that one custom resource owns.
type Owner struct {
	// Annotation is the key of the annotation with the UID.
	Annotation string
	// UID of the custom resource. An empty one owns nothing.
	UID types.UID
	// Found are labels that are written too, and that do not decide ownership.
	Found map[string]string
	// Labels are labels that an object must have in addition to the UID. A change of one of them ends
	// the ownership. Nil: the UID alone decides ownership.
	Labels map[string]string
	// Token is required of an object that others could have created first. Nil: none is required.
	Token *Token
}

// SetOn sets the owner UID and all labels on an object that is about to be written. Labels
// win over Found.
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

// Owns reports whether an object has the owner UID, the Labels and the Token. It is decided from one object alone, without a
// request, so it holds for a cached object as far as the cache is up to date. Package apply asks again with the live object
// before it writes.
func (p Owner) Owns(obj client.Object) bool {
	// An owner without a UID would otherwise own every object without the annotation.
	if p.UID == "" || obj.GetAnnotations()[p.Annotation] != string(p.UID) {
		return false
	}
	existing := obj.GetLabels()
	for key, want := range p.Labels {
		if got, there := existing[key]; !there || got != want {
			return false
		}
	}
	return p.matchesToken(obj)
}

// RefusedError says that an object with a required name exists and is not owned by the
// custom resource. It was left untouched.
type RefusedError struct {
	Kind, Namespace, Name string
}

func (e *RefusedError) Error() string {
	target := e.Name
	if e.Namespace != "" {
		target = e.Namespace + "/" + e.Name
	}
	return fmt.Sprintf("%s %s exists and is not owned by this resource. It was left untouched. Delete or rename it", e.Kind, target)
}
