package view

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

func TestStartStages(t *testing.T) {
	began := time.UnixMilli(1735689600250) // 2025-01-01T00:00:00.25Z
	at := func(ms int) *metav1.MicroTime {
		return &metav1.MicroTime{Time: began.Add(time.Duration(ms) * time.Millisecond)}
	}
	for name, tc := range map[string]struct {
		id   string
		s    *bergv1.StartTimes
		want string
	}{
		"not started":   {"", nil, ""},
		"in progress":   {"01941f29-7cfa-7000-8000-000000000000", &bergv1.StartTimes{NamespaceCreatedAt: at(100), ObjectsWrittenAt: at(350)}, "namespace 0.1s, objects 0.2s"},
		"another's ID":  {"01920000-0000-7000-8000-000000000001", &bergv1.StartTimes{NamespaceCreatedAt: at(150)}, "namespace 0.4s"},
		"with restarts": {"01941f29-7cfa-7000-8000-000000000000", &bergv1.StartTimes{ImagesPulledAt: at(4000), ContainersStartedAt: at(9500)}, "image 4.0s, restart 5.5s"},
		"over": {"01941f29-7cfa-7000-8000-000000000000", &bergv1.StartTimes{
			NamespaceCreatedAt: at(100), ObjectsWrittenAt: at(300), ScheduledAt: at(300), SandboxesCreatedAt: at(1300), ImagesPulledAt: at(4300), ContainersStartedAt: at(4300), PodsReadyAt: at(5300),
		}, "namespace 0.1s, objects 0.2s, schedule 0.0s, sandbox 1.0s, image 3.0s, ready 1.0s"},
	} {
		i := &bergv1.ChallengeInstance{}
		i.Status.InstanceID, i.Status.Start = tc.id, tc.s
		i.Status.StartedAt = &metav1.Time{Time: began.Truncate(time.Second)}
		if got := FormatStages(Stages(i)); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
