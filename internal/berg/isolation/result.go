package isolation

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bergctf/berg-operator/internal/kit/conditions"
)

// ConditionType is the type of the condition on the operator's pod.
const ConditionType corev1.PodConditionType = "berg.norelect.ch/IsolationVerified"

// The reasons of the condition, and of the event.
const (
	// ReasonEnforced: the policy stopped connections that succeeded without it.
	ReasonEnforced = "PolicyEnforced"
	// ReasonIgnored: the policy stopped nothing. Instances are not isolated.
	ReasonIgnored = "PolicyIgnored"
	// ReasonInconclusive: the check could not be made.
	ReasonInconclusive = "CheckInconclusive"
)

// Result is the result of a check.
type Result struct {
	Status  metav1.ConditionStatus
	Reason  string
	Message string
}

func enforced() Result {
	return Result{metav1.ConditionTrue, ReasonEnforced, "a connection that passes without the network policy of an instance does not pass with it"}
}

func ignored() Result {
	return Result{
		metav1.ConditionFalse, ReasonIgnored,
		"the cluster accepts the network policies of instances and does not enforce them: players reach other instances and the cluster; install a network plugin that enforces NETWORK_POLICY",
	}
}

func inconclusive(format string, args ...any) Result {
	return Result{metav1.ConditionUnknown, ReasonInconclusive, conditions.Note(fmt.Sprintf(format, args...))}
}

// reach is the report of a pod by its readiness.
type reach int

const (
	// unknown: the pod does not run, or was not asked yet.
	unknown reach = iota
	reached
	notReached
)

// readReach reads the probe's pods. Only a running pod reports that it does not reach the target; a
// pod that ended is not ready either.
func readReach(pods []corev1.Pod) reach {
	if len(pods) != 1 || pods[0].DeletionTimestamp != nil {
		return unknown
	}
	pod := pods[0]
	if len(pod.Status.ContainerStatuses) != 1 {
		return unknown
	}
	container := pod.Status.ContainerStatuses[0]
	switch {
	case container.State.Running == nil || container.RestartCount > 0:
		return unknown
	case container.Ready:
		return reached
	default:
		return notReached
	}
}

// podProblem says why the probe's pods do not run, as far as they say.
func podProblem(pods []corev1.Pod) string {
	if len(pods) == 0 {
		return "there is no pod"
	}
	pod := pods[0]
	for _, c := range pod.Status.ContainerStatuses {
		if c.State.Waiting != nil {
			return c.State.Waiting.Reason
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Reason
		}
	}
	if readReach(pods) == notReached {
		return "it runs and does not reach the operator"
	}
	return string(pod.Status.Phase)
}
