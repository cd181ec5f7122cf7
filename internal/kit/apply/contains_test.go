package apply

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func newService(modify ...func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "1"}},
		Spec: corev1.ServiceSpec{
			Type:     corev1.ServiceTypeNodePort,
			Ports:    []corev1.ServicePort{{Name: "p", Port: 80}},
			Selector: map[string]string{"app": "x"},
		},
	}
	for _, m := range modify {
		m(s)
	}
	return s
}

func deployment(modify ...func(*corev1.PodSpec)) *appsv1.Deployment {
	d := &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](1)}}
	d.Spec.Template.Spec.Containers = []corev1.Container{{
		Name:      "c",
		Env:       []corev1.EnvVar{{Name: "A", Value: "1"}},
		Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1000m")}},
	}}
	for _, m := range modify {
		m(&d.Spec.Template.Spec)
	}
	return d
}

// owned returns a namespace with these owners, each <kind>/<uid>.
func owned(owners ...string) *corev1.Namespace {
	ns := &corev1.Namespace{}
	for _, o := range owners {
		kind, uid, _ := strings.Cut(o, "/")
		ns.OwnerReferences = append(ns.OwnerReferences, metav1.OwnerReference{APIVersion: "example.com/v1", Kind: kind, Name: "n", UID: types.UID(uid)})
	}
	return ns
}

func TestContains(t *testing.T) {
	for name, tc := range map[string]struct {
		desired, live client.Object
		want          bool
	}{
		"same":                          {newService(), newService(), true},
		"allotted and defaulted":        {newService(), newService(func(s *corev1.Service) { s.Spec.ClusterIP = "10.0.0.1"; s.Spec.Ports[0].NodePort = 30000 }), true},
		"foreign label added":           {newService(), newService(func(s *corev1.Service) { s.Labels["b"] = "2" }), true},
		"label changed":                 {newService(), newService(func(s *corev1.Service) { s.Labels["a"] = "2" }), false},
		"label removed":                 {newService(), newService(func(s *corev1.Service) { s.Labels = nil }), false},
		"port changed":                  {newService(), newService(func(s *corev1.Service) { s.Spec.Ports[0].Port = 81 }), false},
		"port added":                    {newService(), newService(func(s *corev1.Service) { s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Port: 81}) }), false},
		"selector key added":            {newService(), newService(func(s *corev1.Service) { s.Spec.Selector["b"] = "c" }), false},
		"type changed":                  {newService(), newService(func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP }), false},
		"status does not count":         {newService(), newService(func(s *corev1.Service) { s.Status.Conditions = []metav1.Condition{{}} }), true},
		"owner added by others":         {owned("Environment/u1"), owned("Environment/u1", "Other/u9"), true},
		"owner missing":                 {owned("Environment/u1"), owned(), false},
		"owner of another UID":          {owned("Environment/u1"), owned("Environment/u2"), false},
		"owner named twice":             {owned("Environment/u1"), owned("Environment/u1", "Environment/u1"), false},
		"owner that desired leaves out": {owned(), owned("Other/u9"), true},
		"quantity in other notation": {deployment(), deployment(func(p *corev1.PodSpec) {
			p.Containers[0].Resources.Limits[corev1.ResourceCPU] = resource.MustParse("1")
		}), true},
		"quantity changed": {deployment(), deployment(func(p *corev1.PodSpec) {
			p.Containers[0].Resources.Limits[corev1.ResourceCPU] = resource.MustParse("2")
		}), false},
		"variable changed":  {deployment(), deployment(func(p *corev1.PodSpec) { p.Containers[0].Env[0].Value = "2" }), false},
		"variable added":    {deployment(), deployment(func(p *corev1.PodSpec) { p.Containers[0].Env = append(p.Containers[0].Env, corev1.EnvVar{Name: "B"}) }), false},
		"container added":   {deployment(), deployment(func(p *corev1.PodSpec) { p.Containers = append(p.Containers, corev1.Container{Name: "d"}) }), false},
		"default filled in": {deployment(), deployment(func(p *corev1.PodSpec) { p.RestartPolicy = corev1.RestartPolicyAlways }), true},
		"scaled": {deployment(), func() client.Object {
			d := deployment()
			d.Spec.Replicas = ptr.To[int32](0)
			return d
		}(), false},
		"data changed": {
			&corev1.ConfigMap{BinaryData: map[string][]byte{"k": []byte("a")}},
			&corev1.ConfigMap{BinaryData: map[string][]byte{"k": []byte("b")}}, false,
		},
		"data added": {
			&corev1.ConfigMap{BinaryData: map[string][]byte{"k": []byte("a")}},
			&corev1.ConfigMap{BinaryData: map[string][]byte{"k": []byte("a"), "l": nil}}, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Contains(tc.desired, tc.live); got != tc.want {
				t.Errorf("Contains = %v, want %v", got, tc.want)
			}
		})
	}
}
