package apply

import (
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

func TestRecordedKeysAreRemoved(t *testing.T) {
	w := Writer{Record: "example.com/record"}
	before := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Labels:      map[string]string{"kept": "1", "dropped": "1"},
		Annotations: map[string]string{"a-dropped": "1"},
	}}
	w.note(before)
	if got := before.Annotations["example.com/record"]; got != `{"labels":["dropped","kept"],"annotations":["a-dropped"]}` {
		t.Fatalf("the record is %s", got)
	}
	live := before.DeepCopy()
	live.Labels["foreign"] = "1"

	desired := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"kept": "2"}, Annotations: map[string]string{"proof": "x"}}}
	w.note(desired)
	if Contains(desired, live) {
		t.Error("a key that is no longer wanted is not a difference")
	}
	noted := w.noted(live)
	if got, want := merged(live.Labels, noted.Labels, desired.Labels), map[string]string{"kept": "2", "foreign": "1"}; !maps.Equal(got, want) {
		t.Errorf("labels %v, want %v", got, want)
	}
	if got := merged(live.Annotations, noted.Annotations, desired.Annotations); len(got) != 2 || got["a-dropped"] != "" {
		t.Errorf("annotations %v", got)
	}

	live.Annotations["example.com/record"] = "spoiled"
	if noted := w.noted(live); noted.Labels != nil || noted.Annotations != nil {
		t.Errorf("a spoiled record gives %v", noted)
	}
}

// An earlier version of the operator, or a tenant, has set the owner: the garbage collector would delete the policy before the pods.
func TestNetworkPoliciesLoseTheirOwners(t *testing.T) {
	owner := ownership.Owner{Annotation: "example.com/uid", UID: "one"}
	w := Writer{Manager: us, Client: schemeOnly{}}
	for _, desired := range []client.Object{&networkingv1.NetworkPolicy{}, &corev1.ConfigMap{}} {
		owner.SetOn(desired)
		if err := setChecksum(desired, ChecksumAnnotation(owner.Annotation)); err != nil {
			t.Fatal(err)
		}
		live := desired.DeepCopyObject().(client.Object)
		live.SetManagedFields([]metav1.ManagedFieldsEntry{own})
		if !upToDate(w, owner, desired, live) {
			t.Errorf("%T: it is not up to date", desired)
		}
		live.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Challenge", Name: "a", UID: "u"}})
		_, policy := desired.(*networkingv1.NetworkPolicy)
		if upToDate(w, owner, desired, live) == policy || policy && untouched(w, owner, desired, live) {
			t.Errorf("%T with an owner: the difference is not found, or found where there is none", desired)
		}
		after, err := successor(w, owner, desired, live)
		if err != nil || (len(after.GetOwnerReferences()) == 0) != policy {
			t.Errorf("%T: it has the owners %v afterwards, %v", desired, after.GetOwnerReferences(), err)
		}
	}
}
