package apply

import (
	"context"
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// decoder decodes the same JSON into each object, as the client of an API server does.
type decoder struct {
	client.Reader
	text string
}

func (d decoder) Get(_ context.Context, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	return json.Unmarshal([]byte(d.text), obj)
}

// What an object does not have must not come from the desired object that was read into.
func TestReadDropsFieldsOfTheDesiredObject(t *testing.T) {
	desired := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "a", Name: "b", Labels: map[string]string{"managed-by": "us"}, Annotations: map[string]string{"uid": "1"},
		OwnerReferences: []metav1.OwnerReference{{UID: "1"}},
	}}
	if err := Read(t.Context(), decoder{text: `{"metadata":{"namespace":"a","name":"b","labels":{"other":"label"}}}`}, desired); err != nil {
		t.Fatal(err)
	}
	if len(desired.Labels) != 1 || desired.Labels["other"] != "label" || len(desired.Annotations)+len(desired.OwnerReferences) > 0 {
		t.Errorf("%+v", desired.ObjectMeta)
	}
}
