package identity

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func TestImage(t *testing.T) {
	pod := func(containers ...corev1.Container) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "operator-0"}, Spec: corev1.PodSpec{Containers: containers}}
	}
	manager, proxy := corev1.Container{Name: Container, Image: "operator:1"}, corev1.Container{Name: "proxy", Image: "proxy:1"}
	here := client.ObjectKey{Namespace: "system", Name: "operator-0"}
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		key  client.ObjectKey
		want string
	}{
		"its container":                {pod(manager), here, "operator:1"},
		"one among others":             {pod(proxy, manager), here, "operator:1"},
		"the only one, renamed":        {pod(corev1.Container{Name: "x", Image: "operator:2"}), here, "operator:2"},
		"none of that name among some": {pod(proxy, corev1.Container{Name: "x", Image: "x:1"}), here, ""},
		"no pod":                       {pod(manager), client.ObjectKey{Namespace: "system", Name: "laptop"}, ""},
		"no namespace":                 {pod(manager), client.ObjectKey{Name: "operator-0"}, ""},
	} {
		f := &ImageFinder{Reader: fake.NewClientBuilder().WithObjects(tc.pod).Build(), Pod: tc.key}
		if got := f.Image(t.Context()); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestImageIsRemembered(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "operator-0"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: Container, Image: "operator:1"}}}}
	live := fake.NewClientBuilder().WithObjects(pod).Build()
	f := &ImageFinder{Reader: live, Pod: client.ObjectKeyFromObject(pod)}
	first := f.Image(t.Context())
	if err := live.Delete(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if again := f.Image(t.Context()); first != "operator:1" || again != first {
		t.Errorf("first %q, then %q", first, again)
	}
}
