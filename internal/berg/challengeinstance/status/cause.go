package status

import (
	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/view"
)

// computeCause returns why a live instance does not run, in one word for players; "" if it runs. A problem of the build
// comes before problems of pods, as in the conditions, and these before the ways by which players reach them.
func computeCause(out Outcome, phase bergv1.Phase, pods podsSummary, blocked *obstacle) bergv1.Cause {
	switch {
	case phase == bergv1.PhaseRunning:
		return ""
	case out.Problem != nil:
		return view.FindCause(out.Problem.Condition, view.Reason(out.Problem.Reason))
	case blocked != nil && pods.broken == "":
		return view.FindCause(blocked.condition, view.Reason(blocked.reason))
	default:
		return view.FindCause(bergv1.ConditionPodsReady, view.Reason(pods.broken))
	}
}
