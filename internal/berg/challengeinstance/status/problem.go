package status

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/redact"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/refusal"
)

// NewProblem converts the error of a write into a problem on the condition of that step. Neither the text nor the error of the
// problem has the flag.
func NewProblem(conditionType string, err error, flag string) *outcome.Problem {
	p := &outcome.Problem{Condition: conditionType, Message: redact.Text(err.Error(), flag)}
	p.Err = errors.New(p.Message)
	switch outcome.Classify(err) {
	case outcome.NotOwned:
		p.Class, p.Reason = outcome.External, bergv1.ReasonObjectConflict
		if conditionType == bergv1.ConditionNamespaceCreated {
			// The cache did not show the namespace yet. When it does, Check decides about its owner.
			p.Class, p.Reason = outcome.Stale, ""
		}
	case outcome.Conflict:
		p.Class = outcome.Stale
	case outcome.Terminating:
		p.Class, p.Reason = outcome.Waiting, bergv1.ReasonWaiting
	case outcome.Contested:
		p.Class, p.Reason = outcome.Retry, bergv1.ReasonContested
	case outcome.NotInstalled:
		// An event of its definition triggers the next reconciliation.
		p.Class, p.Reason, p.Err = outcome.Blocked, bergv1.ReasonAPINotInstalled, nil
		p.Message = fmt.Sprintf("An API that this instance needs is not installed: %s", p.Message)
	case outcome.NotServed:
		p.Class, p.Reason = outcome.External, bergv1.ReasonAPINotInstalled
		p.Message = fmt.Sprintf("An API that this instance needs is not installed: %s", p.Message)
	case outcome.Rejected:
		p.Class, p.Reason = outcome.Retry, bergv1.ReasonRefused
	case outcome.Failed:
		p.Class, p.Reason = outcome.Retry, bergv1.ReasonWriteFailed
	}
	switch meaning, known := refusal.Explain(p.Message); {
	case p.Class != outcome.Retry || !known:
	case meaning.Kind == refusal.NodePorts:
		p.Reason = bergv1.ReasonOutOfNodePorts
	case meaning.Kind == refusal.ServiceAddresses:
		p.Reason = bergv1.ReasonOutOfAddresses
	case meaning.Kind == refusal.WebhookDown: // the API server works
		p.Reason = bergv1.ReasonRefused
	}
	if p.Class == outcome.Retry && p.Reason != bergv1.ReasonContested {
		p.Message = refusal.Annotate(p.Message)
	}
	if Unconfined(p) {
		p.Message += stoppedUntilConfined
	}
	return p
}

const stoppedUntilConfined = ". Until the network policies are in place, no container of the instance runs"

// Unconfined reports whether a problem leaves the pods of an instance without the network policies that confine them, until
// its cause is removed. A policy that another client changes or deletes is restored each time, and an API server that does
// not answer leaves the policies unchanged: in both cases the pods keep running.
func Unconfined(p *outcome.Problem) bool {
	if p == nil || p.Condition != bergv1.ConditionNetworkPolicyCreated {
		return false
	}
	switch p.Reason {
	case bergv1.ReasonObjectConflict, bergv1.ReasonAPINotInstalled, bergv1.ReasonRefused:
		return true
	default:
		return false
	}
}

// steps are the conditions of a build in their order. After a problem of one, the later ones
// are Unknown.
var steps = bergv1.BuildConditions

// Condition returns a condition without times, which setConditions adds.
func Condition(conditionType string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: conditionType, Status: status, Reason: reason, Message: message}
}
