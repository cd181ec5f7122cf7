package ownership

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
)

func TestProofWithLabels(t *testing.T) {
	proof := Proof{Annotation: "uid", UID: "u1", Labels: map[string]string{"id": "a"}}
	ns := &corev1.Namespace{}
	if proof.Holds(ns) {
		t.Error("holds for nothing")
	}
	proof.Stamp(ns)
	if !proof.Holds(ns) {
		t.Error("does not hold for what it stamped")
	}
	ns.Labels["id"] = "b"
	if proof.Holds(ns) {
		t.Error("holds though a label names another")
	}
	ns.Labels["id"] = "a"
	ns.Annotations["uid"] = "u2"
	if proof.Holds(ns) {
		t.Error("holds though the UID is another")
	}
}

func TestMarks(t *testing.T) {
	marks := Marks{Domain: "example.com", Owner: "thing", Found: map[string]string{"managed-by": "us"}}
	proof := marks.Proof("u1", map[string]string{"id": "a"})
	obj := &unstructured.Unstructured{}
	obj.SetLabels(map[string]string{"kept": "1"})
	proof.Stamp(obj)
	if got := obj.GetAnnotations()["example.com/thing-uid"]; got != "u1" {
		t.Errorf("the UID is %q: %v", got, obj)
	}
	if !proof.Holds(obj) || !marks.Selector().Matches(labels.Set(obj.GetLabels())) || obj.GetLabels()["kept"] != "1" {
		t.Errorf("labels %v", obj.GetLabels())
	}

	obj.SetLabels(map[string]string{"id": "a"})
	if !proof.Holds(obj) {
		t.Error("a label to find by is taken for a proof")
	}
	if marks.Proof("u2", nil).Holds(obj) {
		t.Error("holds for another custom resource")
	}
	if (Marks{Domain: "example.com", Owner: "other"}).Proof("u1", nil).Holds(obj) {
		t.Error("holds for another Kind")
	}
	obj.SetAnnotations(map[string]string{marks.Annotation(): ""})
	if marks.Proof("", nil).Holds(obj) {
		t.Error("an empty UID is a proof")
	}
}
