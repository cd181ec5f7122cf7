package web

import (
	"context"
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/bergctf/berg-operator/internal/api/instances"
)

// statuses are the HTTP statuses of errors for platforms.
var statuses = map[instances.Kind]int{
	instances.NotFound:  http.StatusNotFound,
	instances.Exists:    http.StatusConflict,
	instances.Invalid:   http.StatusBadRequest,
	instances.Refused:   http.StatusBadRequest,
	instances.Exhausted: http.StatusTooManyRequests,
}

// NewProblem returns the problem that an error is for a client, and whether its cause is for the log alone: then the
// client reads nothing of it.
func NewProblem(err error) (p Problem, internal bool) {
	var forPlatform *instances.Error
	var body *BodyError
	switch {
	case errors.As(err, &forPlatform):
		return Problem{statuses[forPlatform.Kind], err.Error()}, false
	case errors.As(err, &body):
		return Problem{body.Status, body.Error()}, false
	case errors.Is(err, context.Canceled):
		return Problem{http.StatusServiceUnavailable, "the request was cancelled"}, false
	case apierrors.IsTooManyRequests(err), apierrors.IsServerTimeout(err), apierrors.IsTimeout(err), apierrors.IsServiceUnavailable(err):
		return Problem{http.StatusServiceUnavailable, "the cluster is busy: try again"}, true
	case apierrors.IsForbidden(err):
		return Problem{http.StatusInternalServerError, "the cluster refuses the request: the log of berg-api says why"}, true
	default:
		return Problem{http.StatusInternalServerError, "the cluster could not be reached, or it failed: the log of berg-api says why"}, true
	}
}
