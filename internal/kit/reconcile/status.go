package reconcile

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
