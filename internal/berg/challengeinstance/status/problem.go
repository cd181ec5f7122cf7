package status

import (
	"errors"
	"fmt"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/redact"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// ProblemOf turns what stopped a write into a problem of that step's condition.
func ProblemOf(conditionType string, err error, flag string) *outcome.Problem {
	p := &outcome.Problem{Condition: conditionType, Message: redact.Text(err.Error(), flag)}
	p.Err = errors.New(p.Message)
	switch outcome.CauseOf(err) {
	case outcome.NotOwned:
		p.Class, p.Reason = outcome.External, bergv1.ReasonObjectConflict
		if conditionType == bergv1.ConditionNamespaceCreated {
			// The cache did not show the namespace yet; when it does, judge says whose
			// it is.
			p.Class, p.Reason = outcome.Stale, ""
		}
	case outcome.Conflict:
		p.Class = outcome.Stale
	case outcome.Terminating:
		p.Class, p.Reason = outcome.Waiting, bergv1.ReasonWaiting
	case outcome.Contested:
		p.Class, p.Reason = outcome.Retry, bergv1.ReasonContested
	case outcome.NotInstalled:
		// Its definition wakes us.
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
	return p
}
