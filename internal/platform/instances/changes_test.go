package instances

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

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
	one, another, registration := &bergv1.ChallengeInstance{ObjectMeta: in("berg")}, &bergv1.ChallengeInstance{ObjectMeta: in("berg")}, &corev1.ConfigMap{ObjectMeta: in("berg")}
	one.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", UID: "a registration", Controller: ptr.To(true)}}
	h := s.handler()
	for name, c := range map[string]struct {
		happens func()
		wakes   bool
	}{
		"an instance changes":            {func() { h.OnUpdate(one, one) }, true},
		"an instance is gone":            {func() { h.OnDelete(one) }, true},
		"one of no registration changes": {func() { h.OnUpdate(another, another) }, false},
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

// The cache is that of the live page, too: it keeps no flag but those that a platform may ask for, and nothing else of a secret.
func TestTheCacheKeepsFewFlags(t *testing.T) {
	const secret = "flag{secret}"
	i := &bergv1.ChallengeInstance{}
	i.Spec.Flag, i.Status.Seed, i.Status.NamespaceTokenHash = secret, secret, secret
	i.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: secret}
	c := &bergv1.Challenge{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: secret}}}
	c.Spec.Containers = []bergv1.Container{{Hostname: "web", Command: []string{secret}, Args: []string{secret}}}
	for _, object := range []any{i, c} {
		kept, err := Trim(object)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := json.Marshal(kept); err != nil || strings.Contains(string(text), secret) {
			t.Errorf("%v: %s", err, text)
		}
	}
	registered := &bergv1.ChallengeInstance{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Controller: ptr.To(true), UID: "u"}}}}
	registered.Spec.Flag = secret
	if _, err := Trim(registered); err != nil || registered.Spec.Flag != secret {
		t.Errorf("the flag that a platform asks for is gone: %v", err)
	}
}
