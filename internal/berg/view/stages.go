package view

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// StageRestart is the stage of the attempts of a start that failed.
const StageRestart = "restart"

// StageField is a stage of a start: its name, which the metric, the plugin and the page use, and the field with its end.
type StageField struct {
	Name string
	End  func(*bergv1.StartTimes) **metav1.MicroTime
}

// StageFields lists the stages of a start in the order of time.
var StageFields = []StageField{
	{"namespace", func(s *bergv1.StartTimes) **metav1.MicroTime { return &s.NamespaceCreatedAt }},
	{"objects", func(s *bergv1.StartTimes) **metav1.MicroTime { return &s.ObjectsWrittenAt }},
	{"schedule", func(s *bergv1.StartTimes) **metav1.MicroTime { return &s.ScheduledAt }},
	{"sandbox", func(s *bergv1.StartTimes) **metav1.MicroTime { return &s.SandboxesCreatedAt }},
	{"image", func(s *bergv1.StartTimes) **metav1.MicroTime { return &s.ImagesPulledAt }},
	{StageRestart, func(s *bergv1.StartTimes) **metav1.MicroTime { return &s.ContainersStartedAt }},
	{"ready", func(s *bergv1.StartTimes) **metav1.MicroTime { return &s.PodsReadyAt }},
}

// Stage is a stage of a start that has ended.
type Stage struct {
	Name string
	End  time.Time
	Took time.Duration
}

// MarshalJSON writes the name and the seconds.
func (s Stage) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Name    string  `json:"stage"`
		Seconds float64 `json:"seconds"`
	}{s.Name, s.Took.Seconds()})
}

// Stages returns the stages of the start of an instance that have ended, in their order. A stage without a time is left out, and
// its time counts to the next one.
func Stages(i *bergv1.ChallengeInstance) (all []Stage) {
	if i.Status.Start == nil || i.Status.StartedAt == nil {
		return nil
	}
	previous := StartedAt(i)
	for _, field := range StageFields {
		if end := *field.End(i.Status.Start); end != nil {
			all = append(all, Stage{field.Name, end.Time, max(0, end.Sub(previous))})
			previous = end.Time
		}
	}
	return all
}

// TimeoutFrom returns when the lifetime of an instance begins; nil before its start.
func TimeoutFrom(i *bergv1.ChallengeInstance) *metav1.Time {
	if i.Status.TimeoutFrom != nil {
		return i.Status.TimeoutFrom
	}
	return i.Status.StartedAt
}

// StartedAt returns when the operator started to build an instance, in milliseconds. A UUID of version 7 begins with its time;
// status.startedAt has seconds only.
func StartedAt(i *bergv1.ChallengeInstance) (start time.Time) {
	if i.Status.StartedAt != nil {
		start = i.Status.StartedAt.Time
	}
	id, err := uuid.Parse(i.Status.InstanceID)
	if err != nil || id.Version() != 7 {
		return start
	}
	var ms int64
	for _, b := range id[:6] {
		ms = ms<<8 | int64(b)
	}
	// The ID has another time if the clock of the start did not create it.
	if t := time.UnixMilli(ms); t.Truncate(time.Second).Equal(start) {
		return t
	}
	return start
}

// FormatStages formats stages in one line, "" if there are none.
func FormatStages(stages []Stage) string {
	words := make([]string, 0, len(stages))
	for _, s := range stages {
		if s.Name != StageRestart || s.Took > 0 { // most starts have no failed attempt
			words = append(words, fmt.Sprintf("%s %.1fs", s.Name, s.Took.Seconds()))
		}
	}
	return strings.Join(words, ", ")
}
