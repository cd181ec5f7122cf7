package cache

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unsafe"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

func TestEqualPartsAreOne(t *testing.T) {
	common := newIntern()
	deployment := func(image string) *appsv1.Deployment {
		d := &appsv1.Deployment{}
		d.Labels = map[string]string{"a": "b"}
		d.Spec.Template.Spec.Containers = []corev1.Container{{Image: image, SecurityContext: &corev1.SecurityContext{}}}
		common.share(d)
		return d
	}
	one, same, other := deployment("x"), deployment("x"), deployment("y")
	if &one.Spec.Template.Spec.Containers[0] != &same.Spec.Template.Spec.Containers[0] {
		t.Error("equal containers are kept twice")
	}
	if reflect.ValueOf(one.Labels).Pointer() != reflect.ValueOf(other.Labels).Pointer() {
		t.Error("equal labels are kept twice")
	}
	if one.Spec.Template.Spec.Containers[0].SecurityContext != other.Spec.Template.Spec.Containers[0].SecurityContext {
		t.Error("an equal part of parts that differ is kept twice")
	}
	if other.Spec.Template.Spec.Containers[0].Image != "y" {
		t.Errorf("got the image %s", other.Spec.Template.Spec.Containers[0].Image)
	}
}

func TestKeptPartsAreCopies(t *testing.T) {
	common := newIntern()
	for _, size := range []int{5, maxText + 1} {
		decoded := strings.Repeat("x", 2*size)
		replicas := ptr.To(int32(size))
		d := &appsv1.Deployment{}
		d.Name, d.Spec.Replicas = decoded[:size], replicas
		common.share(d)
		if d.Name != decoded[:size] || unsafe.StringData(d.Name) == unsafe.StringData(decoded) {
			t.Errorf("a text of %d bytes keeps the %d it was cut out of", size, len(decoded))
		}
		if *d.Spec.Replicas != int32(size) || d.Spec.Replicas == replicas {
			t.Error("what a pointer refers to is kept where it was")
		}
	}
}

func TestPartsThatOccurOnceAreForgotten(t *testing.T) {
	common := newIntern()
	for n := range 10 * recentParts {
		common.share(&corev1.Namespace{Spec: corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerName(fmt.Sprint(n))}}})
	}
	for name, kept := range map[string]int{
		"texts": len(common.texts.recent) + len(common.texts.earlier),
		"parts": len(common.parts.recent) + len(common.parts.earlier),
	} {
		if kept > 2*recentParts {
			t.Errorf("%d %s are kept", kept, name)
		}
	}
}
