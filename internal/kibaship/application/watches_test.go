package application

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
)

func TestRelabelledLetsOurOwnWriteSleep(t *testing.T) {
	like := func(finalizer bool, keys ...string) *kibashipv1.Application {
		a := &kibashipv1.Application{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{}}}
		if finalizer {
			a.Finalizers = []string{kibashipv1.ApplicationFinalizer}
		}
		for _, key := range keys {
			a.Labels[key] = "x"
		}
		return a
	}
	for name, tc := range map[string]struct {
		before, after *kibashipv1.Application
		want          bool
	}{
		"our claim":                      {like(false), like(true, kibashipv1.LabelProjectUUID), false},
		"a label taken off":              {like(true, kibashipv1.LabelProjectUUID), like(true), true},
		"a label put on by a client":     {like(true), like(true, kibashipv1.LabelWorkspaceUUID), true},
		"labels before the finalizer":    {like(false), like(false, kibashipv1.LabelProjectUUID), true},
		"finalizer and labels taken off": {like(true, kibashipv1.LabelProjectUUID), like(false), true},
		"a label of another tool":        {like(true), like(true, "team"), false},
		"nothing":                        {like(true), like(true), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := relabelled.Update(event.UpdateEvent{ObjectOld: tc.before, ObjectNew: tc.after}); got != tc.want {
				t.Errorf("woken: %v, want %v", got, tc.want)
			}
		})
	}
}
