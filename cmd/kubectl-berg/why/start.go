package why

import (
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// Stage is a part of a start with its duration.
type Stage struct {
	Name    string  `json:"stage"`
	Seconds float64 `json:"seconds"`
}

// Stages returns the stages of the start of an instance that are over, in their order.
func Stages(i *bergv1.ChallengeInstance) []Stage {
	s := i.Status.Start
	if s == nil || i.Status.StartedAt == nil {
		return nil
	}
	var all []Stage
	before := startTime(i)
	for _, stage := range []struct {
		name    string
		endedAt *metav1.MicroTime
	}{
		{"namespace", s.NamespaceCreatedAt},
		{"objects", s.ObjectsWrittenAt},
		{"node", s.ScheduledAt},
		{"network", s.SandboxesCreatedAt},
		{"image", s.ImagesPulledAt},
		{"restarts", s.ContainersStartedAt},
		{"readiness", s.PodsReadyAt},
	} {
		if stage.endedAt == nil {
			continue
		}
		took := max(0, stage.endedAt.Sub(before))
		if stage.name != "restarts" || took > 0 { // most have none
			all = append(all, Stage{stage.name, took.Seconds()})
		}
		before = stage.endedAt.Time
	}
	return all
}

// startTime is when the operator started the instance, in milliseconds: its ID, a UUID of version 7,
// begins with that time.
func startTime(i *bergv1.ChallengeInstance) time.Time {
	start := i.Status.StartedAt.Time
	if id, err := uuid.Parse(i.Status.InstanceID); err == nil && id.Version() == 7 {
		var ms int64
		for _, b := range id[:6] {
			ms = ms<<8 | int64(b)
		}
		if t := time.UnixMilli(ms); t.Truncate(time.Second).Equal(start) {
			return t
		}
	}
	return start
}

// FormatStages formats stages in one line, "" if there are none.
func FormatStages(stages []Stage) string {
	var words []string
	for _, s := range stages {
		words = append(words, fmt.Sprintf("%s %.1fs", s.Name, s.Seconds))
	}
	return strings.Join(words, ", ")
}
