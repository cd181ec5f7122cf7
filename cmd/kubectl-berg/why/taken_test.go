package why

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

func TestPodsInTheNamespaceOfAnotherUserAreNotTheInstances(t *testing.T) {
	v := newView(withPod(func(*corev1.Pod) {}))
	if len(currentPods(v)) != 1 || NamespaceTaken(v.Instance) {
		t.Fatal("the pod of the instance is left out")
	}
	sets(bergv1.ConditionNamespaceCreated, metav1.ConditionFalse, bergv1.ReasonNamespaceConflict, "")(&v)
	if len(currentPods(v)) != 0 || !NamespaceTaken(v.Instance) {
		t.Error("a pod of another user counts")
	}
}
