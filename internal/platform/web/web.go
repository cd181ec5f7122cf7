// Package web has the parts that all endpoints of the API share: requests of bounded size, and answers in JSON.
package web

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/bergctf/berg-operator/internal/platform/instances"
	"github.com/bergctf/berg-operator/internal/platform/tokens"
)

// MaxBody is the maximum size of a request's body, in bytes.
const MaxBody = 64 << 10

// BodyError is a body that cannot be used. Its text is for the client.
type BodyError struct {
	// Status is the HTTP status that fits: 400, 408 or 413.
	Status int
	text   string
}

func (e *BodyError) Error() string { return e.text }

// Read reads a JSON object into to. Fields that it does not have are ignored. An empty body is an empty object.
func Read(w http.ResponseWriter, r *http.Request, to any) error {
	data, err := Body(w, r)
	if err != nil {
		return err
	}
	if data = bytes.TrimSpace(data); len(data) == 0 {
		return nil
	}
	if data[0] != '{' {
		return &BodyError{http.StatusBadRequest, "the body must be a JSON object"}
	}
	if err := json.Unmarshal(data, to); err != nil {
		return &BodyError{http.StatusBadRequest, "the body is not what this call takes: " + describe(err)}
	}
	return nil
}

// Body reads a body of at most MaxBody bytes. The server bounds the time.
func Body(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, &BodyError{http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is larger than %d bytes", MaxBody)}
	case err != nil:
		return nil, &BodyError{http.StatusRequestTimeout, "the body did not arrive"}
	}
	return data, nil
}

// Receive waits for the whole body, also for calls that read none, and returns a request that has it. An error is returned
// with the request that was received in part. A client that sends slowly so holds nothing but its connection: the call begins
// when all is there.
func Receive(w http.ResponseWriter, r *http.Request) (*http.Request, error) {
	if r.ContentLength == 0 {
		return r, nil
	}
	data, err := Body(w, r)
	if err != nil {
		return r, err
	}
	received := r.Clone(r.Context())
	received.Body = io.NopCloser(bytes.NewReader(data))
	return received, nil
}

// describe explains the error in a JSON text without any of its values, which may be flags or tokens.
func describe(err error) string {
	var kind *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &kind):
		return fmt.Sprintf("field %s must be a %s", kind.Field, kind.Type)
	case errors.As(err, &syntax):
		return fmt.Sprintf("it is not JSON at byte %d", syntax.Offset)
	default:
		return "a field has a wrong value"
	}
}

// Write answers with a value as JSON.
func Write(w http.ResponseWriter, status int, value any) {
	data, err := json.Marshal(value)
	if err != nil {
		status, data = http.StatusInternalServerError, []byte(`{"message":"the answer could not be encoded"}`)
	}
	Headers(w)
	w.WriteHeader(status)
	_, _ = w.Write(append(data, '\n')) // the client is gone
}

// Headers sets the headers of every JSON answer: no cache keeps it, and no browser displays it as a page.
func Headers(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
}

type grantKey struct{}

// WithGrant returns a context with the Grant of a request's token.
func WithGrant(ctx context.Context, grant tokens.Grant) context.Context {
	return context.WithValue(ctx, grantKey{}, grant)
}

// GrantFrom returns the Grant of a request's token. It is empty if WithGrant was not called.
func GrantFrom(ctx context.Context) tokens.Grant {
	grant, _ := ctx.Value(grantKey{}).(tokens.Grant)
	return grant
}

// Namespace returns the namespace that the token of a request opens.
func Namespace(r *http.Request) string { return GrantFrom(r.Context()).Namespace }

// MaxTimeout is the maximum lifetime of an instance that a platform may ask for.
const MaxTimeout = 365 * 24 * time.Hour

// Call answers a request, or returns an error that the client gets.
type Call func(http.ResponseWriter, *http.Request) error

// Handle adds calls to a mux by their patterns. fail answers with an error. The log has it too, because platforms
// show players less, or nothing. An answer that has begun cannot become a failure, so a call returns an error only before it
// writes.
func Handle(mux *http.ServeMux, log *slog.Logger, fail func(http.ResponseWriter, Failure, error), calls map[string]Call) {
	for pattern, call := range calls {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			err := call(w, r)
			if err == nil {
				return
			}
			failure, internal := NewFailure(err)
			switch {
			case internal:
				log.Error("a call failed", "path", r.URL.Path, "error", err)
			case failure.Status != http.StatusNotFound: // pages of players ask for instances that do not exist
				log.Info("a call was refused", "method", r.Method, "path", r.URL.Path, "status", failure.Status, "reason", failure.Message)
			}
			fail(w, failure, err)
		})
	}
}

// Failure is an error for a client. Each endpoint writes it in the format of its platform.
type Failure struct {
	// Status is the HTTP status.
	Status int
	// Message is for organisers.
	Message string
	// Players is a sentence for players, "" for the one of the status.
	Players string
}

// Endpoint is one way in.
type Endpoint interface {
	// Routes adds the endpoint's patterns to a mux.
	Routes(mux *http.ServeMux)
	// Owns reports whether a path belongs to the endpoint, whether or not a pattern matches it.
	Owns(path string) bool
	// Token returns the token of a request, and the request to serve, which still has its body unless there is an error.
	Token(w http.ResponseWriter, r *http.Request) (string, *http.Request, error)
	// Fail answers with a failure in the format of the platform.
	Fail(w http.ResponseWriter, f Failure)
}

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
