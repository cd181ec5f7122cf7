package stop

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestDue(t *testing.T) {
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	pod := func(since time.Duration, finalizers ...string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{Time: now.Add(-since)}, Finalizers: finalizers}}
	}
	const none = -1
	for name, tc := range map[string]struct {
		pod   *corev1.Pod
		open  bool
		wait  time.Duration
		late  bool
		grace int64
	}{
		"live":                                   {&corev1.Pod{}, false, Late, false, gracePeriodSeconds},
		"just deleted":                           {pod(-time.Second), false, Late + time.Second, false, none},
		"with a long grace period":               {pod(-30 * time.Second), false, Late + 30*time.Second, false, none},
		"ends":                                   {pod(3 * time.Second), false, Late - 3*time.Second, false, none},
		"late":                                   {pod(Late), false, Limit - Late, true, none},
		"of a node that hangs":                   {pod(Limit), false, Limit, true, 0},
		"late, and nothing else confines it":     {pod(Late), true, 0, true, none},
		"long ago, and nothing else confines it": {pod(time.Hour), true, 0, true, none},
		"live, and nothing else confines it":     {&corev1.Pod{}, true, Late, false, gracePeriodSeconds},
		"long ago":                               {pod(time.Hour), false, Limit, true, 0},
		"held by another component":              {pod(time.Hour, "example.org/holds"), false, 0, false, none},
	} {
		wait, late, grace := due(tc.pod, !tc.open, now)
		got := int64(none)
		if grace != nil {
			got = *(&client.DeleteOptions{}).ApplyOptions([]client.DeleteOption{grace}).GracePeriodSeconds
		}
		if wait != tc.wait || late != tc.late || got != tc.grace {
			t.Errorf("%s: wait %s, late %t, grace period %d, want %s, %t, %d", name, wait, late, got, tc.wait, tc.late, tc.grace)
		}
	}
}
