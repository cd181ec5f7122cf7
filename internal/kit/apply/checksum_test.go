package apply

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

func TestPlanChecksum(t *testing.T) {
	owner := ownership.Labels{Domain: "example.com", Owner: "instance"}.For("uid", nil)
	configMap := func(modify func(*corev1.ConfigMap)) client.Object {
		c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"key": "value"}}
		modify(c)
		return c
	}
	checksumOf := func(o client.Object, owner ownership.Owner) string {
		t.Helper()
		before := o.DeepCopyObject().(client.Object)
		sum, err := PlanChecksum(Writer{}, owner, o)
		if err != nil || sum == "" {
			t.Fatalf("%q, error %v", sum, err)
		}
		if len(o.GetAnnotations()) != len(before.GetAnnotations()) {
			t.Errorf("the object was changed: %v", o.GetAnnotations())
		}
		return sum
	}
	written := configMap(func(*corev1.ConfigMap) {})
	owner.SetOn(written)
	if err := setChecksum(written, ChecksumAnnotation(owner.Annotation)); err != nil {
		t.Fatal(err)
	}
	sum := written.GetAnnotations()[ChecksumAnnotation(owner.Annotation)]
	another := owner
	another.UID = "another"
	for name, tc := range map[string]struct {
		plan  client.Object
		owner ownership.Owner
		want  bool
	}{
		"the same plan":     {configMap(func(*corev1.ConfigMap) {}), owner, true},
		"what was written":  {written, owner, true},
		"another value":     {configMap(func(c *corev1.ConfigMap) { c.Data["key"] = "other" }), owner, false},
		"another label":     {configMap(func(c *corev1.ConfigMap) { c.Labels = map[string]string{"a": "b"} }), owner, false},
		"of another owner":  {configMap(func(*corev1.ConfigMap) {}), another, false},
		"without its value": {configMap(func(c *corev1.ConfigMap) { c.Data = nil }), owner, false},
	} {
		if got := checksumOf(tc.plan, tc.owner) == sum; got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
