package finalizer

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

// A write of the finalizers of others is tried against a real API server.
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
