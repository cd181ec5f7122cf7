package check

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/finalizer"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// computeStatus computes the status after the step that a reconciliation has taken. It is pure.
func computeStatus(c *bergv1.ChallengeCheck, s state, _ outcome.Problems, now time.Time) reconcile.Ready {
	var running metav1.Condition
	switch {
	case c.Status.Run != nil && c.Status.Run.FinishedAt == nil:
		running = computeRunning(s.Observed, s.Assessment, now)
	case c.Status.Run != nil && !s.Gone:
		running = ending(s.Observed)
	case c.Status.Run != nil:
		running = computeEnded(s.Observed, now)
	case s.Proof != "":
		running = computeStarted(s.Observed, s.Proof, now)
	default:
		running = condition(bergv1.CheckConditionRunning, metav1.ConditionFalse, s.Reason, s.Message)
	}
	c.Status.NextRunAt = nil
	if next := due(c, s.Challenge); !next.IsZero() && c.Status.Run == nil {
		c.Status.NextRunAt = &metav1.Time{Time: next}
	}
	solvable := solvableCondition(c.Status.LastResult)
	conditions.Upsert(&c.Status.Conditions, c.Generation, now, solvable, running)
	// A Challenge that was not solved needs its author.
	return reconcile.Ready{
		Status: solvable.Status, Reason: solvable.Reason, Message: solvable.Message, Stalled: solvable.Status == metav1.ConditionFalse,
	}
}

// computeStarted computes the status of a check that begins, and returns the condition Running.
func computeStarted(o Observed, namespaceTokenHash string, now time.Time) metav1.Condition {
	c := o.Check
	c.Status.NamespaceUID, c.Status.NamespaceTokenHash = "", namespaceTokenHash
	c.Status.Run = &bergv1.CheckRun{
		StartedAt: metav1.Time{Time: now}, Generation: c.Generation,
		ChallengeGeneration: o.Challenge.Generation, ChallengeUID: string(o.Challenge.UID),
	}
	c.Status.RetryAt = nil
	return condition(bergv1.CheckConditionRunning, metav1.ConditionTrue, bergv1.ReasonStarting, "The instance is being created")
}

// computeEnded computes the status of a check of which nothing is left, and returns the condition Running.
func computeEnded(o Observed, now time.Time) metav1.Condition {
	s := &o.Check.Status
	// All three go in one patch: a run without its token could not prove its namespace, and a token without a run would belong to
	// no check.
	s.Run, s.NamespaceUID, s.NamespaceTokenHash = nil, "", ""
	reason, message := obstacle(o.Check, o.Challenge, now)
	if reason == "" {
		reason, message = bergv1.CheckReasonQueued, "A check is due"
	}
	return condition(bergv1.CheckConditionRunning, metav1.ConditionFalse, reason, message)
}

// computeRunning computes the status of a running check with its assessment, and returns the condition Running.
func computeRunning(o Observed, v Assessment, now time.Time) metav1.Condition {
	s := &o.Check.Status
	if o.Namespace != nil {
		s.NamespaceUID, s.NamespaceTokenHash = o.Namespace.UID, ""
	}
	switch {
	case v.Result != nil:
		s.Run.FinishedAt = &metav1.Time{Time: now}
		result := *v.Result
		result.CheckRun = *s.Run.DeepCopy()
		record(&o.Check.Status, result, o.Check.Spec.HistoryLimit)
		return ending(o)
	case v.BrokenOff != "":
		s.Run.FinishedAt = &metav1.Time{Time: now}
		s.RetryAt = &metav1.Time{Time: now.Add(retryDelay)}
		return ending(o)
	}
	return condition(bergv1.CheckConditionRunning, metav1.ConditionTrue, v.Stage, v.Message)
}

// ending is the condition Running while the objects of a check are being deleted.
func ending(o Observed) metav1.Condition {
	message := "The objects of the check are being deleted"
	if o.Namespace != nil && o.Namespace.DeletionTimestamp != nil {
		if held := finalizer.HeldBack(o.Namespace); held != "" {
			message += ": namespace " + o.Namespace.Name + ": " + held
		}
	}
	return condition(bergv1.CheckConditionRunning, metav1.ConditionTrue, bergv1.CheckReasonEnding, message)
}

// record keeps a result.
func record(s *bergv1.ChallengeCheckStatus, result bergv1.CheckResult, limit int32) {
	s.LastResult = &result
	short := *result.DeepCopy()
	short.Output = ""
	s.History = append([]bergv1.CheckResult{short}, s.History...)
	if limit <= 0 {
		limit = maxResults
	}
	s.History = s.History[:min(len(s.History), int(limit))]
}

// maxResults is the schema's default, for a ChallengeCheck that was stored without.
const maxResults = 10

// solvableCondition says what the last check found.
func solvableCondition(last *bergv1.CheckResult) metav1.Condition {
	switch {
	case last == nil:
		return condition(bergv1.CheckConditionSolvable, metav1.ConditionUnknown, bergv1.CheckReasonNotChecked, "No check has been completed yet")
	case last.Result == bergv1.CheckSolved:
		return condition(bergv1.CheckConditionSolvable, metav1.ConditionTrue, string(last.Result), last.Message)
	default:
		return condition(bergv1.CheckConditionSolvable, metav1.ConditionFalse, string(last.Result), last.Message)
	}
}

func condition(conditionType string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: conditionType, Status: status, Reason: reason, Message: message}
}
