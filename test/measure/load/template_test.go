package main

import (
	"encoding/json"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

func TestTemplateIsFilledForAnotherInstance(t *testing.T) {
	learned := &template{owner: "owner-1", uid: "uid-1", id: "id-1", name: "first", status: `{"phase":"Running","instanceId":"id-1","conditions":[{"type":"Healthy"}]}`}
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "challenge-owner-1", Name: "web", UID: "u", ResourceVersion: "7",
			Annotations: map[string]string{"uid": "uid-1", bergv1.AnnotationInstance: arena + "/first"},
		},
		Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.1", ClusterIPs: []string{"10.0.0.1"}, Selector: map[string]string{"id": "id-1"}},
	}
	if err := learned.add(service); err != nil {
		t.Fatal(err)
	}
	instance := &bergv1.ChallengeInstance{ObjectMeta: metav1.ObjectMeta{Name: "second", UID: "uid-2"}}
	instance.Spec.OwnerID = "owner-2"
	w, err := learned.fill(instance)
	if err != nil {
		t.Fatal(err)
	}
	got := w.objects[0].(*corev1.Service)
	if got.Namespace != "challenge-owner-2" || got.Annotations["uid"] != "uid-2" || got.Annotations[bergv1.AnnotationInstance] != arena+"/second" {
		t.Errorf("got %+v", got.ObjectMeta)
	}
	if got.Spec.Selector["id"] == "id-1" || got.Spec.Selector["id"] == "" {
		t.Errorf("the ID is %q", got.Spec.Selector["id"])
	}
	if got.UID != "" || got.ResourceVersion != "" || got.Spec.ClusterIP != "" || got.Spec.ClusterIPs != nil {
		t.Errorf("what the API server gave stays: %+v", got)
	}
	for phase, patch := range map[bergv1.Phase][]byte{
		bergv1.PhaseCreating: w.creating, bergv1.PhaseStarting: w.starting, bergv1.PhaseRunning: w.running,
		bergv1.PhaseTerminating: w.terminating, bergv1.PhaseTerminated: w.over,
	} {
		var p struct {
			Status bergv1.ChallengeInstanceStatus
		}
		if err := json.Unmarshal(patch, &p); err != nil {
			t.Fatal(err)
		}
		if p.Status.Phase != phase || len(p.Status.Conditions) != 1 || strings.Contains(string(patch), "id-1") {
			t.Errorf("%s: %s", phase, patch)
		}
	}
}

// The bare client shows what a start costs without waiting for connections.
func TestTemplateHasNeitherProbesNorNodePorts(t *testing.T) {
	learned := &template{}
	service := &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1, NodePort: 30001}}}}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"a": "b"}}}
	deployment.Spec.Template.Spec.Containers = []corev1.Container{{Name: "web", StartupProbe: &corev1.Probe{PeriodSeconds: 1}}}
	for _, o := range []client.Object{service, deployment} {
		if err := learned.add(o); err != nil {
			t.Fatal(err)
		}
	}
	for _, o := range learned.objects {
		if strings.Contains(o.text, "startupProbe") || strings.Contains(o.text, "nodePort") {
			t.Errorf("%s", o.text)
		}
	}
}
