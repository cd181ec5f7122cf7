package finalizer

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

func TestTakenOff(t *testing.T) {
	with := func(finalizers ...string) *corev1.ConfigMap {
		o := &corev1.ConfigMap{}
		o.Finalizers = finalizers
		return o
	}
	p := TakenOff("ours")
	for name, tc := range map[string]struct {
		before, after *corev1.ConfigMap
		want          bool
	}{
		"taken off":             {with("ours"), with(), true},
		"taken off, another on": {with("ours"), with("theirs"), true},
		"put on":                {with(), with("ours"), false},
		"kept":                  {with("ours", "theirs"), with("ours"), false},
		"never had it":          {with("theirs"), with(), false},
	} {
		if got := p.Update(event.UpdateEvent{ObjectOld: tc.before, ObjectNew: tc.after}); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if p.Create(event.CreateEvent{Object: with()}) || p.Delete(event.DeleteEvent{Object: with()}) || p.Generic(event.GenericEvent{Object: with()}) {
		t.Error("it selects more than updates")
	}
}

// reader serves one object, as the API server does.
type reader struct {
	client.Client
	object *corev1.ConfigMap
	sent   *corev1.ConfigMap
}

func (r *reader) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	r.object.DeepCopyInto(into.(*corev1.ConfigMap))
	return nil
}

func (r *reader) Patch(_ context.Context, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
	r.sent = o.DeepCopyObject().(*corev1.ConfigMap)
	return nil
}

// The cache keeps few of many finalizers. A write keeps all those of others.
func TestAWriteKeepsTheFinalizersOfOthers(t *testing.T) {
	full := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "u", ResourceVersion: "7"}}
	for n := range 100 {
		full.Finalizers = append(full.Finalizers, fmt.Sprint("others/", n))
	}
	cached := full.DeepCopy()
	cached.Finalizers = []string{"", "others/0"}
	server := &reader{object: full}
	if err := Ensure(t.Context(), server, server, cached.DeepCopy(), "ours/a"); err != nil || len(server.sent.Finalizers) != 101 {
		t.Errorf("%v, finalizers %v", err, server.sent)
	}
	full.Finalizers = append(full.Finalizers, "ours/a")
	cached.Finalizers = append(cached.Finalizers, "ours/a")
	if err := new(Remover).Remove(t.Context(), server, server, cached.DeepCopy(), "ours/a"); err != nil || len(server.sent.Finalizers) != 100 {
		t.Errorf("%v, finalizers %v", err, server.sent)
	}
	server.sent, full.ResourceVersion = nil, "8"
	if err := new(Remover).Remove(t.Context(), server, server, cached.DeepCopy(), "ours/a"); !errors.Is(err, outcome.ErrConflict) || server.sent != nil {
		t.Errorf("by a cache that lags behind: %v, %v", err, server.sent)
	}
}
