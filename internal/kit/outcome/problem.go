// Package outcome says what stopped a reconciliation, what that means, and when
// to look again.
package outcome

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

// Class says what a problem means and who resolves it.
type Class int

const (
	// Waiting: something that is under way must end; its event wakes us.
	Waiting Class = iota
	// InProgress: there is no error, the step is about to be taken.
	InProgress
	// Stale: somebody else wrote at the same time; what they wrote decides, so
	// there is nothing to tell yet.
	Stale
	// Blocked: somebody must fix something that we watch; its event wakes us.
	Blocked
	// External: somebody must fix something that we do not watch; we look again
	// with growing pauses.
	External
	// Retry: the API server refused or failed; we try again with growing pauses.
	Retry
)

// Problem is what keeps a custom resource from its goal, and on which condition
// it shows.
type Problem struct {
	Condition string
	Reason    string
	Message   string
	Class     Class
	// Err is what the API server said, for Foreign and Retry.
	Err error
}

// Cause is why the API server, or package apply, did not do a write.
type Cause int

const (
	// Failed: the API server could not be reached or failed.
	Failed Cause = iota
	// Rejected: the API server refused the object: it is not valid, not allowed,
	// over a quota, or refused by an admission policy.
	Rejected
	// NotOwned: an object of that name exists that does not carry our proof.
	NotOwned
	// Terminating: the object, or its namespace, is being deleted.
	Terminating
	// Contested: somebody undoes the write each time.
	Contested
	// NotInstalled: there is no such kind.
	NotInstalled
	// NotServed: there is such a kind, and this API server does not serve it: it is
	// being removed, or the API server does not know of it yet.
	NotServed
	// Conflict: somebody else wrote at the same time.
	Conflict
)

// CauseOf returns the cause of a failed write.
func CauseOf(err error) Cause {
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
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return Conflict
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err):
		return Rejected
	default:
		return Failed
	}
}

// KindUnknown reports whether the API server did not know the kind of a request.
func KindUnknown(err error) bool { return apply.KindUnknown(err) }
