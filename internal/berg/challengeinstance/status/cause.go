package status

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// computeCause returns why a live instance does not run, in one word for players; "" if it runs. A
// problem of the build comes before those of pods, as in the conditions.
func computeCause(out Outcome, phase bergv1.Phase, pods podsSummary) bergv1.Cause {
	switch {
	case phase == bergv1.PhaseRunning:
		return ""
	case out.Problem != nil:
		return causeOfProblem(out.Problem)
	default:
		return causeOfPods(pods.broken)
	}
}

// causeOfProblem maps a problem of the build. A write that is in progress, or an API server
// that did not answer, needs no action.
func causeOfProblem(p *outcome.Problem) bergv1.Cause {
	switch p.Reason {
	case bergv1.ReasonOwnerBusy:
		return bergv1.CauseOwnerBusy
	case bergv1.ReasonFrozen:
		return bergv1.CauseFrozen
	case string(bergv1.CauseQueued):
		return bergv1.CauseQueued
	case bergv1.ReasonChallengeMissing, bergv1.ReasonReferenceNotAllowed, bergv1.ReasonNothingToRun, bergv1.ReasonInvalidChallenge,
		bergv1.ReasonFlagMissing, bergv1.ReasonInvalidFlag, bergv1.ReasonRevisionMissing:
		return bergv1.CauseInvalid
	case bergv1.ReasonRefused, bergv1.ReasonNoSuitableNode, bergv1.ReasonNamespaceConflict, bergv1.ReasonObjectConflict, bergv1.ReasonContested:
		return bergv1.CauseRefused
	}
	switch {
	case p.Condition == bergv1.ConditionServicesCreated, p.Condition == bergv1.ConditionRoutesCreated:
		return bergv1.CauseAddressPending
	case p.Reason == bergv1.ReasonAPINotInstalled:
		return bergv1.CauseRefused
	default:
		return bergv1.CauseNotReadyYet
	}
}

// causes maps the reasons of Kubernetes for pods that do not start. Other reasons mean nothing
// to a player.
var causes = map[string]bergv1.Cause{
	corev1.PodReasonUnschedulable: bergv1.CauseNoCapacity,
	"Evicted":                     bergv1.CauseNoCapacity,
	"Preempting":                  bergv1.CauseNoCapacity,

	"ErrImagePull":              bergv1.CauseImageUnavailable,
	"ImagePullBackOff":          bergv1.CauseImageUnavailable,
	"InvalidImageName":          bergv1.CauseImageUnavailable,
	"ErrImageNeverPull":         bergv1.CauseImageUnavailable,
	"RegistryUnavailable":       bergv1.CauseImageUnavailable,
	"ImageInspectError":         bergv1.CauseImageUnavailable,
	"SignatureValidationFailed": bergv1.CauseImageUnavailable,

	crashLoopBackOff:            bergv1.CauseCrashing,
	"RunContainerError":         bergv1.CauseCrashing,
	"StartError":                bergv1.CauseCrashing,
	"ContainerCannotRun":        bergv1.CauseCrashing,
	"CreateContainerError":      bergv1.CauseCrashing,
	"PostStartHookError":        bergv1.CauseCrashing,
	string(corev1.PodFailed):    bergv1.CauseCrashing,
	string(corev1.PodSucceeded): bergv1.CauseCrashing,

	bergv1.ReasonRefused:         bergv1.CauseRefused,
	sandboxFailed:                bergv1.CauseRefused,
	"CreateContainerConfigError": bergv1.CauseRefused,
}

// outOf is the prefix of the reasons with which a kubelet rejects a pod for lack of a
// resource.
const outOf = "OutOf"

func causeOfPods(reason string) bergv1.Cause {
	if cause, known := causes[reason]; known {
		return cause
	}
	if strings.HasPrefix(reason, outOf) {
		return bergv1.CauseNoCapacity
	}
	return bergv1.CauseNotReadyYet
}
