package record

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/naming"
)

const (
	// maxRecord is how large a record may be in JSON, as the API server stores it: half of etcd's
	// maximum, so that managedFields and a log full of quotes fit in too.
	maxRecord = 768 << 10
	// maxContainers is the maximum of the schema.
	maxContainers = 64
	maxMessage    = 1024
	maxReason     = 256
)

// Seen is the observed state of an instance before its namespace is deleted.
type Seen struct {
	// Pods of the instance; nil if it had none, or they could not be listed.
	Pods []corev1.Pod
	// Logs by pod and container. One that was not asked for is not in it.
	Logs map[LogKey]Log
	// Incomplete says why pods or logs are missing, "" if they are not.
	Incomplete string
}

// LogKey names a container.
type LogKey struct{ Pod, Container string }

// Log is the end of a container's output.
type Log struct {
	// Raw is the log of the last run, Before the log of the run before it.
	Raw, Before []byte
	// Cut and BeforeCut: there was more before.
	Cut, BeforeCut bool
	// Missing says why it could not be read, "" if it could.
	Missing string
}

// compose creates the record of an instance. It contains no flag, and fits into the limits of the
// API server.
func compose(e challengeinstance.Ending, seen Seen, cfg config.Record, now time.Time) *bergv1.ChallengeInstanceRecord {
	i := e.Instance
	c := censorFor(e)
	spec := bergv1.ChallengeInstanceRecordSpec{
		Instance:            bergv1.RecordedInstance{Namespace: i.Namespace, Name: i.Name, UID: string(i.UID), InstanceID: i.Status.InstanceID},
		ChallengeRef:        e.Challenge,
		ChallengeGeneration: i.Status.ChallengeGeneration,
		OwnerID:             i.Spec.OwnerID,
		Source:              i.Labels[bergv1.LabelSource],
		Reason:              e.Reason,
		Phase:               lastPhase(i),
		Problem:             recordedProblem(i, c),
		Timeline:            timeline(e),
		EndedAt:             endTime(i, now),
		Incomplete:          beginning(c.text(seen.Incomplete), maxMessage),
	}
	spec.Containers = containers(seen, c)
	for _, container := range spec.Containers {
		spec.Restarts += container.Restarts
	}
	if over := len(spec.Containers) - maxContainers; over > 0 {
		spec.Containers = spec.Containers[:maxContainers]
		spec.Incomplete = beginning(strings.TrimSpace(fmt.Sprintf("%d more containers are left out. %s", over, spec.Incomplete)), maxMessage)
	}
	size := fit(&spec)
	record := &bergv1.ChallengeInstanceRecord{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cfg.Namespace,
			Name:      string(i.UID),
			Labels: map[string]string{
				bergv1.LabelManagedBy: bergv1.ManagedBy,
				bergv1.LabelComponent: bergv1.ComponentRecord,
				bergv1.LabelChallenge: naming.LabelValue(e.Challenge.Name),
				bergv1.LabelOwnerID:   i.Spec.OwnerID,
			},
			Annotations: map[string]string{
				bergv1.AnnotationInstance:    i.Namespace + "/" + i.Name,
				bergv1.AnnotationChallenge:   e.Challenge.Name,
				bergv1.AnnotationInstanceUID: string(i.UID),
				bergv1.AnnotationDeleteAt:    now.Add(cfg.Retention).UTC().Format(time.RFC3339),
				bergv1.AnnotationRecordSize:  strconv.Itoa(size),
			},
		},
		Spec: spec,
	}
	if spec.Source != "" {
		record.Labels[bergv1.LabelSource] = spec.Source
	}
	return record
}

// lastPhase is the last phase of an instance before its deletion, "" if its status does not say.
func lastPhase(i *bergv1.ChallengeInstance) bergv1.Phase {
	if i.Status.Phase == bergv1.PhaseTerminating || i.Status.Phase == bergv1.PhaseTerminated {
		return ""
	}
	return i.Status.Phase
}

func endTime(i *bergv1.ChallengeInstance, now time.Time) metav1.Time {
	if i.DeletionTimestamp != nil {
		return *i.DeletionTimestamp
	}
	return metav1.Time{Time: now.Truncate(time.Second)}
}

// recordedProblem is the first condition that was False, else the first that was not known to be True; nil
// if there is none. The conditions stand in the order in which an instance is built.
func recordedProblem(i *bergv1.ChallengeInstance, c censor) *bergv1.RecordedProblem {
	for _, status := range []metav1.ConditionStatus{metav1.ConditionFalse, metav1.ConditionUnknown} {
		for _, condition := range i.Status.Conditions {
			if condition.Status == status && condition.Reason != bergv1.ReasonTerminating && slices.Contains(bergv1.ProblemConditions, condition.Type) {
				since := condition.LastTransitionTime
				return &bergv1.RecordedProblem{Condition: condition.Type, Reason: condition.Reason, Message: c.words(condition.Message), Since: &since}
			}
		}
	}
	return nil
}

// timeline returns the moments of an instance, earliest first.
func timeline(e challengeinstance.Ending) []bergv1.RecordedMoment {
	i := e.Instance
	var all []bergv1.RecordedMoment
	add := func(moment string, reached *metav1.Time) {
		if !reached.IsZero() {
			all = append(all, bergv1.RecordedMoment{Moment: moment, At: *reached})
		}
	}
	add("Created", &i.CreationTimestamp)
	add("Started", i.Status.StartedAt)
	if e.Namespace != nil {
		add("NamespaceCreated", &e.Namespace.CreationTimestamp)
	}
	add("Running", i.Status.ReadyAt)
	if e.Reason == bergv1.EndReason(bergv1.TerminationTimeout) {
		add("Expired", e.ExpiresAt)
	}
	add("Ended", i.DeletionTimestamp)
	slices.SortStableFunc(all, func(a, b bergv1.RecordedMoment) int { return a.At.Compare(b.At.Time) })
	return all
}

// containers returns the ends of all containers, by pod and name.
func containers(seen Seen, c censor) []bergv1.RecordedContainer {
	var all []bergv1.RecordedContainer
	for i := range seen.Pods {
		pod := &seen.Pods[i]
		if len(pod.Status.ContainerStatuses) == 0 {
			all = append(all, withoutContainers(pod, c))
		}
		for _, status := range pod.Status.ContainerStatuses {
			recorded := recordedAs(pod, status, c)
			if log, ok := seen.Logs[LogKey{pod.Name, status.Name}]; ok {
				addLog(&recorded, log, c)
			}
			all = append(all, recorded)
		}
	}
	slices.SortFunc(all, func(a, b bergv1.RecordedContainer) int {
		return cmp.Or(strings.Compare(a.Pod, b.Pod), strings.Compare(a.Name, b.Name))
	})
	return all
}

// withoutContainers stands for a pod that no node has taken, or that is being prepared.
func withoutContainers(pod *corev1.Pod, c censor) bergv1.RecordedContainer {
	recorded := bergv1.RecordedContainer{
		Name: cmp.Or(pod.Labels[bergv1.LabelContainer], "unknown"), Pod: pod.Name, Node: pod.Spec.NodeName,
		Image: requestedImage(pod, pod.Labels[bergv1.LabelContainer]),
		State: string(cmp.Or(pod.Status.Phase, corev1.PodPending)),
	}
	recorded.WaitingFor, recorded.Message = pod.Status.Reason, pod.Status.Message
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			recorded.WaitingFor, recorded.Message = condition.Reason, condition.Message
		}
	}
	return bounded(recorded, c)
}

func recordedAs(pod *corev1.Pod, status corev1.ContainerStatus, c censor) bergv1.RecordedContainer {
	recorded := bergv1.RecordedContainer{
		Name: status.Name, Pod: pod.Name, Image: requestedImage(pod, status.Name), Node: pod.Spec.NodeName,
		Ready: status.Ready, Restarts: status.RestartCount,
	}
	ended := status.LastTerminationState.Terminated
	switch state := status.State; {
	case state.Terminated != nil:
		recorded.State, ended = "Terminated", state.Terminated
	case state.Running != nil:
		recorded.State = "Running"
	default:
		recorded.State = "Waiting"
		if state.Waiting != nil {
			recorded.WaitingFor, recorded.Message = state.Waiting.Reason, state.Waiting.Message
		}
	}
	if ended != nil {
		recorded.Exit = &bergv1.RecordedExit{
			Code: ended.ExitCode, Reason: beginning(c.text(ended.Reason), maxReason),
			StartedAt: unlessZero(ended.StartedAt), FinishedAt: unlessZero(ended.FinishedAt),
		}
		recorded.Message = cmp.Or(recorded.Message, c.lastWords(ended.Message))
	}
	return bounded(recorded, c)
}

// requestedImage returns the image of a container as its spec names it: its status may have another name
// for the same image.
func requestedImage(pod *corev1.Pod, name string) string {
	for _, c := range pod.Spec.Containers {
		if c.Name == name {
			return c.Image
		}
	}
	return ""
}

func unlessZero(t metav1.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func bounded(recorded bergv1.RecordedContainer, c censor) bergv1.RecordedContainer {
	recorded.Image = beginning(c.text(recorded.Image), maxMessage)
	recorded.WaitingFor = beginning(c.text(recorded.WaitingFor), maxReason)
	recorded.Message = beginning(c.words(recorded.Message), maxMessage)
	return recorded
}

// addLog adds the end of a log to the record of its container.
func addLog(recorded *bergv1.RecordedContainer, log Log, c censor) {
	if c.short {
		recorded.LogMissing = "The flag is too short to be distinguished from ordinary words"
		return
	}
	if c.lost {
		recorded.LogMissing = "The Challenge was changed or deleted after the start, and the flag that it had then is not known any more"
		return
	}
	text := c.log(log.Raw, log.Cut || mayBeCut(log.Raw))
	wasCut := log.Cut
	if len(log.Before) > 0 {
		before := c.log(log.Before, log.BeforeCut || mayBeCut(log.Before))
		if !strings.HasSuffix(before, "\n") {
			before += "\n"
		}
		text = before + restartSeparator + text
		wasCut = wasCut || log.BeforeCut
	}
	var shortened bool
	recorded.Log, shortened = end(text, MaxLog)
	recorded.LogCut = wasCut || shortened
	recorded.LogMissing = beginning(c.text(log.Missing), maxMessage)
}

// mayBeCut reports whether a log that appears complete may start within a line: a runtime may break
// shorter lines for the file, too, which then count more than once.
func mayBeCut(raw []byte) bool { return bytes.Count(raw, []byte("\n")) >= manyLines/2 }

// fit shortens the largest logs until the record fits, and returns its size in bytes. It halves the largest log each time, so it
// ends soon, and small logs stay whole.
func fit(spec *bergv1.ChallengeInstanceRecordSpec) int {
	all, logs := recordSize(*spec), make([]int, len(spec.Containers))
	for i := range spec.Containers {
		logs[i] = encodedSize(spec.Containers[i].Log)
	}
	for all > maxRecord {
		if len(logs) == 0 {
			break
		}
		maxBytes := slices.Index(logs, slices.Max(logs))
		if spec.Containers[maxBytes].Log == "" {
			break
		}
		c := &spec.Containers[maxBytes]
		c.Log, _ = end(c.Log, len(c.Log)/2)
		c.LogCut = true
		all -= logs[maxBytes]
		logs[maxBytes] = encodedSize(c.Log)
		all += logs[maxBytes]
	}
	return recordSize(*spec)
}

// withoutLogs takes all logs out of a record that is too large for where it goes, and says why.
func withoutLogs(r *bergv1.ChallengeInstanceRecord, reason string) {
	for i := range r.Spec.Containers {
		c := &r.Spec.Containers[i]
		if c.Log != "" {
			c.Log, c.LogCut, c.LogMissing = "", false, reason
		}
	}
	r.Annotations[bergv1.AnnotationRecordSize] = strconv.Itoa(recordSize(r.Spec))
}

func recordSize(spec bergv1.ChallengeInstanceRecordSpec) int { return encodedSize(spec) }

func encodedSize(v any) int {
	data, err := json.Marshal(v)
	if err != nil {
		return maxRecord + 1 // none of its types can fail
	}
	return len(data)
}
