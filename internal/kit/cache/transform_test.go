package cache

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/bergctf/berg-operator/internal/kit/apply"
)

// An object of an unknown type is cached as it is, except for what is not read.
func TestUnstructuredObjectsAreTransformed(t *testing.T) {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Gadget", "spec": map[string]any{"size": int64(3)},
	}}
	u.SetAnnotations(map[string]string{corev1.LastAppliedConfigAnnotation: "{}", "kept": "1"})
	u.SetManagedFields([]metav1.ManagedFieldsEntry{{
		Manager: "us", Operation: metav1.ManagedFieldsOperationUpdate, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{}}`),
	}})
	transform := New("us").transform(Options{})
	for range 2 { // an informer may transform an object twice
		kept, err := transform(u)
		if err != nil {
			t.Fatal(err)
		}
		u = kept.(*unstructured.Unstructured)
		if got := u.GetAnnotations(); len(got) != 1 || got["kept"] != "1" {
			t.Errorf("annotations %v", got)
		}
		if !apply.Unmodified("us", u) || u.GetManagedFields()[0].FieldsV1 != nil {
			t.Errorf("managedFields %v", u.GetManagedFields())
		}
		if size, _, _ := unstructured.NestedInt64(u.Object, "spec", "size"); size != 3 {
			t.Errorf("the content is %v", u.Object)
		}
	}
}
