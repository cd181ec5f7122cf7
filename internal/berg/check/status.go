package check

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/finalizer"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// retryDelay is how long after a check that was broken off the next one may begin.
const retryDelay = time.Minute

// obstacle returns the obstacle to a check, apart from other checks and players; no reason if there
// is none.
func obstacle(c *bergv1.ChallengeCheck, challenge *bergv1.Challenge, now time.Time) (reason, message string) {
	next := due(c, challenge)
	switch {
	case c.Spec.Suspend:
		return bergv1.CheckReasonSuspended, "spec.suspend is true: no check runs"
	case challenge == nil:
		return bergv1.ReasonChallengeMissing, fmt.Sprintf("No Challenge %s exists that a ChallengeCheck of this namespace may use: create it, or correct spec.challengeRef or the operator's CHALLENGE_REF_POLICY", c.Spec.ChallengeRef.Name)
	case !dynamic(challenge) && challenge.Spec.Flag == "":
		return bergv1.CheckReasonNoFlag, "The Challenge has no flag: give a container of the Challenge a dynamicFlag, or set the Challenge's spec.flag"
	case next.IsZero():
		return bergv1.CheckReasonIdle, "The next check runs when the Challenge or this ChallengeCheck is changed"
	case next.After(now):
		return bergv1.CheckReasonIdle, "The next check is due at " + next.UTC().Format(time.RFC3339)
	case challenge.Annotations[bergv1.AnnotationFrozen] != "":
		return bergv1.ReasonFrozen, fmt.Sprintf("The Challenge is frozen: the check runs when its annotation %s is removed", bergv1.AnnotationFrozen)
	}
	return "", ""
}

// waiting returns why a ChallengeCheck without a current check waits; no reason if it does not.
func waiting(o Observed, limit int, now time.Time) (reason, message string) {
	if reason, message = obstacle(o.Check, o.Challenge, now); reason != "" {
		return reason, message
	}
	if o.Players.Wait {
		return bergv1.CheckReasonPlayersFirst, fmt.Sprintf("%s, and players go first: the check runs when no player waits", o.Players)
	}
	if !o.RefusedUntil.IsZero() {
		return bergv1.CheckReasonQueued, "The API server refused to let the check begin, as an event says: other checks go first for a minute"
	}
	if wait := waitReason(o.Contenders, o.Check.UID, limit); wait != "" {
		return bergv1.CheckReasonQueued, wait
	}
	return "", ""
}

// computeIdle is the status while no check is made.
func computeIdle(o Observed, reason, message string, now time.Time) {
	computeStatus(o, condition(bergv1.CheckConditionRunning, metav1.ConditionFalse, reason, message), now)
}

// computeStarted is the status of a check that begins.
func computeStarted(o Observed, tokenDigest string, now time.Time) {
	c := o.Check
	c.Status.NamespaceUID, c.Status.NamespaceTokenDigest = "", tokenDigest
	c.Status.Run = &bergv1.CheckRun{
		StartedAt: metav1.Time{Time: now}, Generation: c.Generation,
		ChallengeGeneration: o.Challenge.Generation, ChallengeUID: string(o.Challenge.UID),
	}
	c.Status.RetryAt = nil
	computeStatus(o, condition(bergv1.CheckConditionRunning, metav1.ConditionTrue, bergv1.ReasonStarting, "The instance is being created"), now)
}

// computeRunning is the status of a check that is being made, with its assessment.
func computeRunning(o Observed, v Assessment, now time.Time) {
	s := &o.Check.Status
	if o.Namespace != nil {
		s.NamespaceUID, s.NamespaceTokenDigest = o.Namespace.UID, ""
	}
	running := condition(bergv1.CheckConditionRunning, metav1.ConditionTrue, v.Stage, v.Message)
	switch {
	case v.Result != nil:
		s.Run.FinishedAt = &metav1.Time{Time: now}
		result := *v.Result
		result.CheckRun = *s.Run.DeepCopy()
		record(&o.Check.Status, result, o.Check.Spec.HistoryLimit)
		running = ending(o)
	case v.BrokenOff != "":
		s.Run.FinishedAt = &metav1.Time{Time: now}
		s.RetryAt = &metav1.Time{Time: now.Add(retryDelay)}
		running = ending(o)
	}
	computeStatus(o, running, now)
}

// computeEnding computes the status while the objects of a check are deleted.
func computeEnding(o Observed, now time.Time) { computeStatus(o, ending(o), now) }

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

func computeStatus(o Observed, running metav1.Condition, now time.Time) {
	c := o.Check
	c.Status.ObservedGeneration = c.Generation
	c.Status.NextRunAt = nil
	if next := due(c, o.Challenge); !next.IsZero() && c.Status.Run == nil {
		c.Status.NextRunAt = &metav1.Time{Time: next}
	}
	solvable := solvableCondition(c.Status.LastResult)
	conditions.Upsert(&c.Status.Conditions, c.Generation, now, solvable, running)
	// A Challenge that was not solved needs its author.
	reconcile.Ready{
		Status: solvable.Status, Reason: solvable.Reason, Message: solvable.Message, Stalled: solvable.Status == metav1.ConditionFalse,
	}.SetOn(&c.Status.Conditions, c.Generation, now)
}

// solvableCondition returns the condition for the result of the last check.
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
