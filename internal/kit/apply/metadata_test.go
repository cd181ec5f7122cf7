package apply

import (
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
