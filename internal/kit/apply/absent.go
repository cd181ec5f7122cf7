package apply

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// KindUnknown reports whether a 404 is about the kind of a request and not about an object: it
// names no object, or it is not an answer of the API itself, for which the client adds a cause. A
// proxy in front of the API server may answer so too. Such a 404 does not mean that an object is
// gone.
func KindUnknown(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	// An answer without details comes from a server that has no handler for the path. The API server names the object in every 404
	// of a kind that it serves.
	return details == nil || details.Name == "" || apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// Absent reports whether the API server said that there is no such object.
func Absent(err error) bool { return apierrors.IsNotFound(err) && !KindUnknown(err) }

// IgnoreAbsent returns nil for an object that is not there, else the error.
func IgnoreAbsent(err error) error {
	if Absent(err) {
		return nil
	}
	return err
}

// Found reads an object into an empty one, and returns nil if it does not exist.
func Found[T client.Object](ctx context.Context, c client.Reader, key client.ObjectKey, into T) (none T, _ error) {
	if err := c.Get(ctx, key, into); err != nil {
		return none, IgnoreAbsent(err)
	}
	return into, nil
}
