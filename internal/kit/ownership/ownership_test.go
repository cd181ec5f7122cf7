package ownership

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
)

func TestOwnerWithLabels(t *testing.T) {
	proof := Owner{Annotation: "uid", UID: "u1", Labels: map[string]string{"id": "a"}}
	ns := &corev1.Namespace{}
	if proof.Owns(ns) {
		t.Error("an empty Owner owns an object")
	}
	proof.SetOn(ns)
	if !proof.Owns(ns) {
		t.Error("it does not own an object on which it was set")
	}
	ns.Labels["id"] = "b"
	if proof.Owns(ns) {
		t.Error("it owns an object with another value of a label")
	}
	ns.Labels["id"] = "a"
	ns.Annotations["uid"] = "u2"
	if proof.Owns(ns) {
		t.Error("it owns an object with another UID")
	}
}

func TestOwnershipLabels(t *testing.T) {
	marks := Labels{Domain: "example.com", Owner: "thing", Found: map[string]string{"managed-by": "us"}}
	proof := marks.For("u1", map[string]string{"id": "a"})
	obj := &unstructured.Unstructured{}
	obj.SetLabels(map[string]string{"kept": "1"})
	proof.SetOn(obj)
	if got := obj.GetAnnotations()["example.com/thing-uid"]; got != "u1" {
		t.Errorf("the UID is %q: %v", got, obj)
	}
	if !proof.Owns(obj) || !marks.Selector().Matches(labels.Set(obj.GetLabels())) || obj.GetLabels()["kept"] != "1" {
		t.Errorf("labels %v", obj.GetLabels())
	}

	obj.SetLabels(map[string]string{"id": "a"})
	if !proof.Owns(obj) {
		t.Error("a label for lookups proves ownership")
	}
	if marks.For("u2", nil).Owns(obj) {
		t.Error("it owns an object of another custom resource")
	}
	if (Labels{Domain: "example.com", Owner: "other"}).For("u1", nil).Owns(obj) {
		t.Error("it owns an object of another Kind")
	}
	obj.SetAnnotations(map[string]string{marks.Annotation(): ""})
	if marks.For("", nil).Owns(obj) {
		t.Error("an empty UID proves ownership")
	}
}
