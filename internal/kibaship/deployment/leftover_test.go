package deployment

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// Tekton takes what it finds by the name of a run for that run's, whichever run it was made for.
func TestNothingOfAnEarlierRunIsLeft(t *testing.T) {
	const namespace, name = "project-p-ns-kibaship-com", "project-p-app-web-deployment-live-run-1"
	part := func(o client.Object, run string) client.Object {
		o.SetNamespace(namespace)
		o.SetName("left")
		o.SetLabels(map[string]string{labelPipelineRun: run})
		return o
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	metav1.AddToGroupVersion(scheme, tektonVersion)
	scheme.AddKnownTypeWithName(taskRunKind, empty(taskRunKind))
	scheme.AddKnownTypeWithName(tektonVersion.WithKind("TaskRunList"), emptyList(taskRunKind))
	for want, left := range map[string]client.Object{
		"TaskRun left of an earlier run of this name is being deleted": part(empty(taskRunKind), name),
		"Pod left of an earlier run of this name is being deleted":     part(&corev1.Pod{}, name),
		"<nil>": part(&corev1.Pod{}, name+"1"),
	} {
		r := &Reconciler{}
		r.Writer.Live = fake.NewClientBuilder().WithScheme(scheme).WithObjects(left).Build()
		err := r.checkLeftovers(t.Context(), newRunObject(namespace, name))
		if got := fmt.Sprint(err); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
