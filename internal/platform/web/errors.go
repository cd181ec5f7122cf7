package web

import (
	"cmp"
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
		return Failure{statuses[forPlatform.Kind], err.Error(), forPlatform.Players}, false
	case errors.As(err, &body):
		return Failure{Status: body.Status, Message: body.Error()}, false
	case errors.Is(err, context.Canceled):
		return Failure{Status: http.StatusServiceUnavailable, Message: "the request was cancelled"}, false
	case apierrors.IsTooManyRequests(err), apierrors.IsServerTimeout(err), apierrors.IsTimeout(err), apierrors.IsServiceUnavailable(err):
		return Failure{Status: http.StatusServiceUnavailable, Message: "the cluster is busy: try again"}, true
	case apierrors.IsForbidden(err):
		return Failure{Status: http.StatusInternalServerError, Message: "the cluster refuses the request: the log of berg-api says why"}, true
	default:
		return Failure{Status: http.StatusInternalServerError, Message: "the cluster could not be reached, or it failed: the log of berg-api says why"}, true
	}
}

// sentences are for players who meet an error that has no sentence of its own, by HTTP status.
var sentences = map[int]string{
	http.StatusNotFound:            "There is no such instance.",
	http.StatusConflict:            "You have an instance of this challenge already.",
	http.StatusTooManyRequests:     "There are too many requests: try again in a few seconds.",
	http.StatusServiceUnavailable:  "The servers are busy: try again in a few seconds.",
	http.StatusInternalServerError: "The servers do not answer. Tell the organisers.",
}

// ForPlayers returns the failure in a sentence for players, which names nothing of the cluster.
func (f Failure) ForPlayers() string {
	return cmp.Or(f.Players, sentences[f.Status], "The instance cannot be started. Tell the organisers.")
}
