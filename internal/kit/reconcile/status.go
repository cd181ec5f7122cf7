package reconcile

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// Status writes the status of a kind: in one function, once in a reconciliation.
type Status[T client.Object] struct {
	// Client writes it.
	Client client.Client
	// Pointer returns a pointer to the status of a resource.
	Pointer func(T) any
	// Bound cuts texts of the status outside its conditions to lengths that the API server accepts,
	// before anything is compared. Nil: there is nothing to cut.
	Bound func(T)
	// Touch writes the time of a status that has changed. Nil: nothing does.
	Touch func(T)
	// Rejected is called when the API server refuses the status, which it will do again: an event can
	// then report the problem that the status cannot. Nil: it is only an error.
	Rejected func(T, error)
}

// Patch writes the status of a resource. before is a copy that was made when the resource was read.
// An unchanged status costs no request. If another client has written the resource, the error is a
// conflict, and if it is gone an outcome.ErrGone.
func (s Status[T]) Patch(ctx context.Context, before, resource T) error {
	if s.Bound != nil {
		s.Bound(resource)
	}
	if equality.Semantic.DeepEqual(s.Pointer(before), s.Pointer(resource)) {
		return nil
	}
	if s.Touch != nil {
		s.Touch(resource)
	}
	err := outcome.WrapNotFound(s.Client.Status().Patch(ctx, resource,
		// The lock refuses a status that was computed from an older version of the resource. Two writers would otherwise each undo
		// a part of the other's status, since lists of a merge patch are replaced as a whole.
		client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
	if s.Rejected != nil && outcome.Classify(err) == outcome.Rejected {
		s.Rejected(resource, err)
	}
	return err
}

// Join joins the error of a reconciliation with the error of its status. A conflict of the status
// alone would make the failure appear as none, and another reconciliation follows a conflict
// anyway.
func Join(failed, status error) error {
	if failed != nil && apierrors.IsConflict(status) {
		status = nil
	}
	return errors.Join(failed, status)
}

// The conditions that every Kind has, with the meaning that kstatus gives them: kubectl wait, Flux, Argo CD and Helm
// go by them.
const (
	ConditionReady = "Ready"
	// ConditionStalled is there, and True, only while a person must act.
	ConditionStalled = "Stalled"
)

// Ready reports whether a resource has reached the state that its spec asks for.
type Ready struct {
	Status          metav1.ConditionStatus
	Reason, Message string
	// Stalled: it stays so until a person acts. kstatus calls it Failed instead of InProgress.
	Stalled bool
}

// ReadyUnless is False for a problem, and without one True for the given reason.
func ReadyUnless(p *outcome.Problem, reason, message string) Ready {
	if p == nil {
		return Ready{Status: metav1.ConditionTrue, Reason: reason, Message: message}
	}
	return Ready{Status: metav1.ConditionFalse, Reason: p.Reason, Message: p.Message, Stalled: p.Class.NeedsAction()}
}

// NotReady is False for a reason that passes by itself.
func NotReady(reason, message string) Ready {
	return Ready{Status: metav1.ConditionFalse, Reason: reason, Message: message}
}

// SetOn writes the conditions Ready and Stalled.
func (r Ready) SetOn(all *[]metav1.Condition, generation int64, now time.Time) {
	conditions.Upsert(all, generation, now, metav1.Condition{Type: ConditionReady, Status: r.Status, Reason: r.Reason, Message: r.Message})
	if r.Stalled {
		conditions.Upsert(all, generation, now, metav1.Condition{Type: ConditionStalled, Status: metav1.ConditionTrue, Reason: r.Reason, Message: r.Message})
		return
	}
	meta.RemoveStatusCondition(all, ConditionStalled)
}
