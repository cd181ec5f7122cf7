package cache

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

func TestEncodedObjectsAreReadAsTheyWere(t *testing.T) {
	about := metav1.ObjectMeta{
		Namespace: "n", Name: "o", ResourceVersion: "7", UID: "u", Generation: 2,
		Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}, Finalizers: []string{"e/f"},
	}
	other := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Other"}}
	other.SetName("o")
	for want, objects := range map[bool][]client.Object{
		true: {
			&corev1.Namespace{ObjectMeta: about, Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive}},
			&corev1.Pod{ObjectMeta: about, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}},
			&corev1.Service{ObjectMeta: about, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1, TargetPort: intstr.FromString("x")}}}},
			&appsv1.Deployment{ObjectMeta: about, Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](3)}},
			&policyv1.PodDisruptionBudget{ObjectMeta: about, Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr.To(intstr.FromInt32(1))}},
		},
		false: {&gatewayv1.HTTPRoute{ObjectMeta: about}, other},
	} {
		for _, o := range objects {
			kind := fmt.Sprintf("%T", o)
			kept, err := encode(o)
			if err != nil {
				t.Fatal(err)
			}
			if _, got := kept.(*encoded); got != want {
				t.Errorf("%s: encoded is %t", kind, got)
			}
			if kept.GetNamespace() != o.GetNamespace() || kept.GetName() != o.GetName() || kept.GetResourceVersion() != o.GetResourceVersion() {
				t.Errorf("%s: kept as %s %s %s", kind, kept.GetNamespace(), kept.GetName(), kept.GetResourceVersion())
			}
			if read := decode(kept); !equality.Semantic.DeepEqual(o, read) {
				t.Errorf("%s:\n%s", kind, cmp.Diff(o, read))
			}
		}
	}
}
