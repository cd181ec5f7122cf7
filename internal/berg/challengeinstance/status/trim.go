package status

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
)

// TrimContainer keeps the fields of a container's status that say why it waits, when it started and how it ended, but not
// its termination message. The message may be anything that the program wrote, also a flag.
func TrimContainer(s corev1.ContainerStatus) corev1.ContainerStatus {
	kept := corev1.ContainerStatus{
		Name: s.Name, Ready: s.Ready, RestartCount: s.RestartCount,
		State:                corev1.ContainerState{Waiting: s.State.Waiting, Terminated: trimEnd(s.State.Terminated)},
		LastTerminationState: corev1.ContainerState{Terminated: trimEnd(s.LastTerminationState.Terminated)},
	}
	if awaitsProbe(s) {
		kept.Started = s.Started
	}
	if r := s.State.Running; r != nil {
		kept.State.Running = &corev1.ContainerStateRunning{StartedAt: r.StartedAt}
	}
	return kept
}

// TrimInitContainers keeps, as TrimContainer does, the init containers that prevent the start of a pod. The others have
// done their work, or run as they should.
func TrimInitContainers(all []corev1.ContainerStatus) []corev1.ContainerStatus {
	var kept []corev1.ContainerStatus
	for _, s := range all {
		end := cmp.Or(s.State.Terminated, s.LastTerminationState.Terminated)
		if s.State.Waiting != nil || !s.Ready && end != nil && end.ExitCode != 0 {
			kept = append(kept, TrimContainer(s))
		}
	}
	return kept
}

func trimEnd(t *corev1.ContainerStateTerminated) *corev1.ContainerStateTerminated {
	if t == nil {
		return nil
	}
	kept := &corev1.ContainerStateTerminated{Reason: t.Reason, ExitCode: t.ExitCode, StartedAt: attempted(t)}
	if neverRan(t) {
		kept.Message = sandboxID.ReplaceAllString(t.Message, "...")
	}
	return kept
}

// TrimCondition keeps the fields of a pod condition that the status depends on. The transition
// time counts only if the condition is true, and of readiness also if it has ended.
func TrimCondition(c corev1.PodCondition) corev1.PodCondition {
	kept := corev1.PodCondition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message}
	if c.Status == corev1.ConditionTrue || c.Type == corev1.PodReady {
		kept.LastTransitionTime = c.LastTransitionTime
	}
	return kept
}

// TrimAnswers keeps the parts of a controller's conditions that view.Gateway reads: not the times, and of a message its
// beginning.
func TrimAnswers(all []metav1.Condition) []metav1.Condition {
	var kept []metav1.Condition
	for _, c := range all {
		switch c.Type {
		case string(gatewayv1.GatewayConditionAccepted), string(gatewayv1.GatewayConditionProgrammed), string(gatewayv1.RouteConditionResolvedRefs),
			string(gatewayv1.ListenerConditionConflicted):
			message, isConflict := "", c.Type == string(gatewayv1.ListenerConditionConflicted)
			if isConflict == (c.Status == metav1.ConditionTrue) {
				message = conditions.Shorten(c.Message, maxAnswer)
			}
			kept = append(kept, metav1.Condition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: message})
		}
	}
	return kept
}

const (
	// maxAnswer is the kept length of a controller's message, and maxParents the kept number of its answers to a route.
	maxAnswer, maxParents = 256, 4
)

// TrimParents keeps of the answers to a route what TrimAnswers keeps.
func TrimParents(all []gatewayv1.RouteParentStatus) []gatewayv1.RouteParentStatus {
	var kept []gatewayv1.RouteParentStatus
	for _, p := range all[:min(len(all), maxParents)] {
		ref := gatewayv1.ParentReference{Namespace: p.ParentRef.Namespace, Name: p.ParentRef.Name, SectionName: p.ParentRef.SectionName}
		kept = append(kept, gatewayv1.RouteParentStatus{ParentRef: ref, ControllerName: p.ControllerName, Conditions: TrimAnswers(p.Conditions)})
	}
	return kept
}

// TrimEndpoints keeps whether an EndpointSlice leads to a pod, and to which Service it belongs.
func TrimEndpoints(s *discoveryv1.EndpointSlice) {
	leads := slices.ContainsFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool { return e.Conditions.Ready == nil || *e.Conditions.Ready })
	service := s.Labels[discoveryv1.LabelServiceName]
	*s = discoveryv1.EndpointSlice{TypeMeta: s.TypeMeta, ObjectMeta: metav1.ObjectMeta{
		Namespace: s.Namespace, Name: s.Name, UID: s.UID, ResourceVersion: s.ResourceVersion, Labels: map[string]string{discoveryv1.LabelServiceName: service},
	}}
	if leads {
		s.Endpoints = make([]discoveryv1.Endpoint, 1)
	}
}

// TrimEvent keeps which pod of an instance had which problem, and nothing of other events. It
// removes the name of the sandbox, which differs in every attempt.
func TrimEvent(e *eventsv1.Event) {
	kept := eventsv1.Event{TypeMeta: e.TypeMeta}
	kept.Namespace, kept.Name, kept.UID, kept.ResourceVersion = e.Namespace, e.Name, e.UID, e.ResourceVersion
	if strings.HasPrefix(e.Namespace, manifests.NamespacePrefix) {
		kept.Regarding.UID = e.Regarding.UID
		kept.Note = sandboxID.ReplaceAllString(e.Note, "...")
		kept.DeprecatedLastTimestamp.Time = happened(e)
	}
	*e = kept
}

// happened is when an event last happened.
func happened(e *eventsv1.Event) time.Time {
	moment := e.CreationTimestamp.Time
	for _, t := range []time.Time{e.EventTime.Time, e.DeprecatedLastTimestamp.Time} {
		if t.After(moment) {
			moment = t
		}
	}
	if e.Series != nil && e.Series.LastObservedTime.After(moment) {
		moment = e.Series.LastObservedTime.Time
	}
	return moment
}

// sandboxID is the name that the runtime gives to each attempt.
var sandboxID = regexp.MustCompile(`[0-9a-f]{64}`)
