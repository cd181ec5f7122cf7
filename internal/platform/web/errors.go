package web

import (
	"context"
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/bergctf/berg-operator/internal/platform/instances"
)

// statuses are the HTTP statuses of errors for platforms.
var statuses = map[instances.Kind]int{
	instances.NotFound:  http.StatusNotFound,
	instances.Exists:    http.StatusConflict,
	instances.Invalid:   http.StatusBadRequest,
	instances.Refused:   http.StatusBadRequest,
	instances.Exhausted: http.StatusTooManyRequests,
}

// NewFailure converts an error into the answer for a client. internal reports that only the log may have the cause,
// because the error of the API server may name parts of a spec. The client then gets a general message.
func NewFailure(err error) (f Failure, internal bool) {
	var forPlatform *instances.Error
	var body *BodyError
	switch {
	case errors.As(err, &forPlatform):
		return Failure{statuses[forPlatform.Kind], err.Error()}, false
	case errors.As(err, &body):
		return Failure{body.Status, body.Error()}, false
	case errors.Is(err, context.Canceled):
		return Failure{http.StatusServiceUnavailable, "the request was cancelled"}, false
	case apierrors.IsTooManyRequests(err), apierrors.IsServerTimeout(err), apierrors.IsTimeout(err), apierrors.IsServiceUnavailable(err):
		return Failure{http.StatusServiceUnavailable, "the cluster is busy: try again"}, true
	case apierrors.IsForbidden(err):
		return Failure{http.StatusInternalServerError, "the cluster refuses the request: the log of berg-api says why"}, true
	default:
		return Failure{http.StatusInternalServerError, "the cluster could not be reached, or it failed: the log of berg-api says why"}, true
	}
}
