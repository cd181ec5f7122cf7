package cache

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// readFrom returns an object as a family with domains reads it from its cache.
func readFrom(t *testing.T, domains []string, o client.Object) client.Object {
	t.Helper()
	kept, err := New("us").transform(Options{Domains: domains, Finalizers: []string{"us.example/ours"}})(o)
	if err != nil {
		t.Fatal(err)
	}
	return decode(kept).(client.Object)
}

func metadata(content string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: "n", Name: "o", UID: "u", ResourceVersion: "7", Generation: 3,
		Labels:      map[string]string{"us.example/part-of": "a", "other/b": "c"},
		Annotations: map[string]string{"us.example/uid": "x", "us.example/long": content, "other/content": content},
		OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "A", Name: "a", UID: "1"}, {APIVersion: "v1", Kind: "B", Name: "b", UID: "2"},
		},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "us", Operation: metav1.ManagedFieldsOperationUpdate}},
	}
}

// Of an object that is too large what proves its owner and says how it is are kept, and nothing that others fill.
func TestOfALargeObjectItsOwnerAndStatusAreKept(t *testing.T) {
	content := strings.Repeat("x", MaxContent)
	d := &appsv1.Deployment{
		ObjectMeta: metadata(content),
		Spec:       appsv1.DeploymentSpec{Replicas: ptr.To[int32](2)},
		Status:     appsv1.DeploymentStatus{ObservedGeneration: 3},
	}
	got := readFrom(t, []string{"us.example"}, d).(*appsv1.Deployment)
	if !Reduced(got) || got.Spec.Replicas != nil || len(got.ManagedFields) > 0 || len(got.Labels) != 1 || len(got.Annotations) != 2 {
		t.Errorf("kept too much: %+v", got)
	}
	if got.UID != "u" || got.ResourceVersion != "7" || got.Generation != 3 || got.Status.ObservedGeneration != 3 ||
		got.Labels["us.example/part-of"] != "a" || got.Annotations["us.example/uid"] != "x" || len(got.OwnerReferences) != 2 {
		t.Errorf("kept too little: %+v", got)
	}

	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "a/v1", "kind": "B", "spec": map[string]any{"a": content}, "status": map[string]any{"b": "c"}}}
	u.SetNamespace("n")
	read := readFrom(t, []string{"us.example"}, u).(*unstructured.Unstructured)
	if text, _, _ := unstructured.NestedString(read.Object, "status", "b"); !Reduced(read) || read.Object["spec"] != nil || text != "c" || read.GetKind() != "B" || read.GetAPIVersion() != "a/v1" {
		t.Errorf("kept %v", read)
	}
}

func TestAStatusThatIsTooLargeIsDropped(t *testing.T) {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "o"}}
	d.Status.Conditions = []appsv1.DeploymentCondition{{Message: strings.Repeat("x", MaxContent)}}
	if got := readFrom(t, []string{"us.example"}, d).(*appsv1.Deployment); len(got.Status.Conditions) > 0 {
		t.Errorf("kept %d conditions", len(got.Status.Conditions))
	}
	many := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Labels: map[string]string{}}}
	for n := range MaxContent / 16 {
		many.Labels[fmt.Sprintf("us.example/%d", n)] = "abcdefgh"
	}
	if got := readFrom(t, []string{"us.example"}, many); len(got.GetLabels()) != maxKeys {
		t.Errorf("kept %d labels", len(got.GetLabels()))
	}
}

func TestWhatIsKeptWhole(t *testing.T) {
	content := strings.Repeat("x", MaxContent)
	for name, tc := range map[string]struct {
		object  client.Object
		domains []string
	}{
		"a small object":             {&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n"}, Data: map[string]string{"a": "b"}}, []string{"us.example"}},
		"a family without domains":   {&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n"}, Data: map[string]string{"a": content}}, nil},
		"an object of the cluster's": {&corev1.Node{Status: corev1.NodeStatus{Phase: corev1.NodePhase(content)}}, []string{"us.example"}},
	} {
		if Reduced(readFrom(t, tc.domains, tc.object)) {
			t.Errorf("%s: the content was dropped", name)
		}
	}
}

// A namespace whose deletion is held back says by which finalizers, also if they are many.
func TestOfALargeNamespaceItsFinalizersAreKnown(t *testing.T) {
	ns := &corev1.Namespace{ObjectMeta: metadata(""), Spec: corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{"kubernetes"}}}
	ns.Namespace = ""
	for n := range 1000 {
		ns.Finalizers = append(ns.Finalizers, fmt.Sprintf("%d.example.com/%s", n, strings.Repeat("x", 60)))
	}
	first := ns.Finalizers[0]
	got := readFrom(t, []string{"us.example"}, ns).(*corev1.Namespace)
	if !Reduced(got) || len(got.Finalizers) != maxFinalizers || got.Finalizers[0] != first || got.Finalizers[maxFinalizers-1] != "" || len(got.Spec.Finalizers) != 1 {
		t.Errorf("kept %d finalizers, the first is %q, and %v of the content", len(got.Finalizers), got.Finalizers[0], got.Spec.Finalizers)
	}
}

// Others may put as many finalizers on a custom resource as fit into it. The family's own stays known among them.
func TestOwnFinalizersAreKnownAmongMany(t *testing.T) {
	gateway := &gatewayv1.Gateway{ObjectMeta: metadata("")}
	for n := range 1000 {
		gateway.Finalizers = append(gateway.Finalizers, fmt.Sprint("us.example/other-", n))
	}
	gateway.Finalizers = append(gateway.Finalizers, "us.example/ours")
	got := readFrom(t, []string{"us.example"}, gateway.DeepCopy())
	if kept := got.GetFinalizers(); !FinalizersReduced(got) || len(kept) > maxKeys || !slices.Contains(kept, "us.example/ours") {
		t.Errorf("kept %q", kept)
	}
	gateway.Finalizers = gateway.Finalizers[990:]
	if got := readFrom(t, []string{"us.example"}, gateway.DeepCopy()); FinalizersReduced(got) || len(got.GetFinalizers()) != 11 {
		t.Errorf("of a few finalizers %q are kept", got.GetFinalizers())
	}
}
