package ownership

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
)

func TestOwnerWithLabels(t *testing.T) {
	owner := Owner{Annotation: "uid", UID: "u1", Labels: map[string]string{"id": "a"}}
	ns := &corev1.Namespace{}
	if owner.Owns(ns) {
		t.Error("an empty Owner owns an object")
	}
	owner.SetOn(ns)
	if !owner.Owns(ns) {
		t.Error("it does not own an object on which it was set")
	}
	ns.Labels["id"] = "b"
	if owner.Owns(ns) {
		t.Error("it owns an object with another value of a label")
	}
	ns.Labels["id"] = "a"
	ns.Annotations["uid"] = "u2"
	if owner.Owns(ns) {
		t.Error("it owns an object with another UID")
	}
}

func TestOwnershipLabels(t *testing.T) {
	ownershipLabels := Labels{Domain: "example.com", Owner: "thing", Found: map[string]string{"managed-by": "us"}}
	owner := ownershipLabels.For("u1", map[string]string{"id": "a"})
	obj := &unstructured.Unstructured{}
	obj.SetLabels(map[string]string{"kept": "1"})
	owner.SetOn(obj)
	if got := obj.GetAnnotations()["example.com/thing-uid"]; got != "u1" {
		t.Errorf("the UID is %q: %v", got, obj)
	}
	if !owner.Owns(obj) || !ownershipLabels.Selector().Matches(labels.Set(obj.GetLabels())) || obj.GetLabels()["kept"] != "1" {
		t.Errorf("labels %v", obj.GetLabels())
	}

	obj.SetLabels(map[string]string{"id": "a"})
	if !owner.Owns(obj) {
		t.Error("a label for lookups proves ownership")
	}
	if ownershipLabels.For("u2", nil).Owns(obj) {
		t.Error("it owns an object of another custom resource")
	}
	if (Labels{Domain: "example.com", Owner: "other"}).For("u1", nil).Owns(obj) {
		t.Error("it owns an object of another Kind")
	}
	obj.SetAnnotations(map[string]string{ownershipLabels.Annotation(): ""})
	if ownershipLabels.For("", nil).Owns(obj) {
		t.Error("an empty UID proves ownership")
	}
}
