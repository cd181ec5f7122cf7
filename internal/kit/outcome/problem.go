// Package outcome classifies the problems that stop a reconciliation: who resolves each, and when
// the operator tries again.
package outcome

import (
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
	"github.com/bergctf/berg-operator/internal/kit/refusal"
)

// Class classifies a problem by the party that resolves it.
type Class int

const (
	// Waiting: an operation in progress must end; its event triggers the next reconciliation.
	Waiting Class = iota
	// InProgress: there is no error, the step is about to be taken.
	InProgress
	// Stale: another client wrote at the same time. The next reconciliation decides by the newer state, so there
	// is nothing to report yet.
	Stale
	// Blocked: a person must fix an object that the operator watches; its event triggers the next reconciliation.
	Blocked
	// External: a person must change an object that the operator does not watch; it tries again with
	// exponential backoff.
	External
	// Retry: the API server refused the request or failed; the operator tries again with exponential backoff.
	Retry
)

// NeedsAction reports whether a problem of this class stays until a person fixes its cause.
func (c Class) NeedsAction() bool { return c == Blocked || c == External }

// Problem keeps a custom resource from its goal, and is reported on a condition.
type Problem struct {
	Condition string
	Reason    string
	Message   string
	Class     Class
	// Err is the API server's error, for External and Retry.
	Err error
}

// The reasons that NewProblem gives.
const (
	ReasonAPINotInstalled   = "APINotInstalled"
	ReasonContested         = "Contested"
	ReasonOwnershipConflict = "OwnershipConflict"
	ReasonRefused           = "Refused"
	ReasonWaiting           = "Waiting"
	ReasonWriteFailed       = "WriteFailed"
)

// NewProblem returns the problem for a failed write, with the usual class and reason of its cause; nil for no error.
func NewProblem(condition string, err error) *Problem {
	if err == nil {
		return nil
	}
	p := &Problem{Condition: condition, Message: refusal.Annotate(err.Error()), Err: err}
	switch Classify(err) {
	case NotOwned:
		p.Class, p.Reason = External, ReasonOwnershipConflict
	case Conflict:
		p.Class, p.Reason = Stale, ReasonWaiting
	case Terminating:
		p.Class, p.Reason, p.Err = Waiting, ReasonWaiting, nil
	case Contested:
		p.Class, p.Reason = Retry, ReasonContested
	case NotInstalled, NotServed:
		p.Class, p.Reason = External, ReasonAPINotInstalled
	case Rejected:
		p.Class, p.Reason = External, ReasonRefused
	case Failed:
		p.Class, p.Reason = Retry, ReasonWriteFailed
	}
	return p
}

// Failure is why the API server, or package apply, did not do a write.
type Failure int

const (
	// Failed: the API server could not be reached or failed.
	Failed Failure = iota
	// Rejected: the API server refused the object: it is invalid, not allowed, over a quota, or refused by an
	// admission policy.
	Rejected
	// NotOwned: an object of that name exists and does not carry our owner UID.
	NotOwned
	// Terminating: the object, or its namespace, is being deleted.
	Terminating
	// Contested: another client undoes the write each time.
	Contested
	// NotInstalled: there is no such kind.
	NotInstalled
	// NotServed: there is such a kind, and this API server does not serve it: it is being removed, or the API server
	// does not know it yet.
	NotServed
	// Conflict: another client wrote at the same time.
	Conflict
)

// Classify returns why a write failed. The order matters. A namespace that is being deleted answers Forbidden, which would
// otherwise be a refusal. A 404 without a name is about the kind, and comes before the 404 of an object, which means that another
// client deleted it between the read and the write.
func Classify(err error) Failure {
	var refused *ownership.RefusedError
	var terminating *apply.TerminatingError
	var contested *apply.ContestedError
	switch {
	case errors.As(err, &refused):
		return NotOwned
	case errors.As(err, &terminating), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return Terminating
	case errors.As(err, &contested):
		return Contested
	case meta.IsNoMatchError(err):
		return NotInstalled
	case KindUnknown(err), apierrors.IsMethodNotSupported(err):
		return NotServed
	case apierrors.IsConflict(err), apierrors.IsNotFound(err), errors.Is(err, ErrConflict):
		return Conflict
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err):
		return Rejected
	default:
		return Failed
	}
}

// KindUnknown reports whether the API server did not know the kind of a request.
func KindUnknown(err error) bool { return apply.KindUnknown(err) }

// Problems keep a custom resource from its goal, in the order of the steps that they stopped. Each condition
// has one at most: the first.
type Problems []*Problem

// Add appends a problem; nil is none. The first problem of a condition is the cause. Later ones are most often its consequences.
func (all *Problems) Add(p *Problem) {
	if p != nil && all.On(p.Condition) == nil {
		*all = append(*all, p)
	}
}

// Replace replaces the problem of the same condition, or appends p.
func (all *Problems) Replace(p *Problem) {
	if index := slices.IndexFunc(*all, func(other *Problem) bool { return other.Condition == p.Condition }); index >= 0 {
		(*all)[index] = p
		return
	}
	*all = append(*all, p)
}

// On returns the problem that shows on a condition, nil for none.
func (all Problems) On(condition string) *Problem {
	if index := slices.IndexFunc(all, func(p *Problem) bool { return p.Condition == condition }); index >= 0 {
		return all[index]
	}
	return nil
}

// First returns the first problem, nil for none.
func (all Problems) First() *Problem {
	if len(all) == 0 {
		return nil
	}
	return all[0]
}

// Stale reports whether the observed state is out of date, so that nothing can be reported about it.
func (all Problems) Stale() bool {
	return slices.ContainsFunc(all, func(p *Problem) bool { return p.Class == Stale })
}

// Err returns the errors that must be tried again, nil for none. Waiting and Blocked have no error: their event leads to the next
// reconciliation, and a retry would find the same.
func (all Problems) Err() error {
	var errs []error
	for _, p := range all {
		errs = append(errs, p.Err)
	}
	return errors.Join(errs...)
}
