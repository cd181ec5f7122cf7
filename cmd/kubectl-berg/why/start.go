package why

import (
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// Stage is a part of a start, and how long it took.
type Stage struct {
	Name    string  `json:"stage"`
	Seconds float64 `json:"seconds"`
}

// Stages are those of the start of an instance that are over, in their order.
func Stages(i *bergv1.ChallengeInstance) []Stage {
	s := i.Status.Start
	if s == nil || i.Status.StartedAt == nil {
		return nil
	}
	var all []Stage
	before := begun(i)
	for _, stage := range []struct {
		name string
		at   *metav1.MicroTime
	}{
		{"namespace", s.NamespaceCreatedAt},
		{"objects", s.ObjectsWrittenAt},
		{"node", s.ScheduledAt},
		{"network", s.SandboxesCreatedAt},
		{"image", s.ImagesPulledAt},
		{"restarts", s.ContainersStartedAt},
		{"readiness", s.PodsReadyAt},
	} {
		if stage.at == nil {
			continue
		}
		took := max(0, stage.at.Sub(before))
		if stage.name != "restarts" || took > 0 { // most have none
			all = append(all, Stage{stage.name, took.Seconds()})
		}
		before = stage.at.Time
	}
	return all
}

// begun is when the operator began, to the millisecond: an instance's ID begins with that time.
func begun(i *bergv1.ChallengeInstance) time.Time {
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

// InWords are stages in a line, "" if none is over.
func InWords(stages []Stage) string {
	var words []string
	for _, s := range stages {
		words = append(words, fmt.Sprintf("%s %.1fs", s.Name, s.Seconds))
	}
	return strings.Join(words, ", ")
}
