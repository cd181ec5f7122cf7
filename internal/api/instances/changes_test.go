package instances

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// Streams of instances look when an instance changes, or a registration comes or goes, and at nothing else.
func TestWhatWakesAStreamOfInstances(t *testing.T) {
	s := &Store{}
	changed, stop := s.Changes("berg")
	defer stop()
	seen := func() bool {
		select {
		case <-changed:
			return true
		default:
			return false
		}
	}
	in := func(namespace string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: namespace, Name: "one"} }
	one, registration := &bergv1.ChallengeInstance{ObjectMeta: in("berg")}, &corev1.ConfigMap{ObjectMeta: in("berg")}
	h := s.handler()
	for name, c := range map[string]struct {
		happens func()
		wakes   bool
	}{
		"an instance changes":            {func() { h.OnUpdate(one, one) }, true},
		"an instance is gone":            {func() { h.OnDelete(one) }, true},
		"one elsewhere changes":          {func() { h.OnUpdate(nil, &bergv1.ChallengeInstance{ObjectMeta: in("other")}) }, false},
		"a registration is created":      {func() { h.OnAdd(registration, false) }, true},
		"a registration changes":         {func() { h.OnUpdate(registration, registration) }, false},
		"a registration is gone":         {func() { h.OnDelete(registration) }, true},
		"a registration elsewhere comes": {func() { h.OnAdd(&corev1.ConfigMap{ObjectMeta: in("other")}, false) }, false},
	} {
		if c.happens(); seen() != c.wakes {
			t.Errorf("%s: it must wake: %t", name, c.wakes)
		}
	}
}
