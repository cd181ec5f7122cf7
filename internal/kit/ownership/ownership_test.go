package ownership

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
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
