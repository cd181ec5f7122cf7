package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
)

var errNoAnswer = errors.New("the API server did not answer")

// Transient reports whether an error may be gone at the next attempt: no connection, no answer,
// or one that says to come back.
func Transient(err error) bool {
	var network net.Error
	var asked *url.Error
	switch {
	case err == nil, errors.Is(err, context.Canceled):
		return false
	case apierrors.IsServerTimeout(err), apierrors.IsTimeout(err), apierrors.IsTooManyRequests(err),
		apierrors.IsServiceUnavailable(err), apierrors.IsInternalError(err), apierrors.IsUnexpectedServerError(err):
		return true
	case apierrors.ReasonForError(err) != "":
		return false
	case errors.Is(err, errNoAnswer), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF),
		errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE),
		errors.As(err, &network), utilnet.IsConnectionReset(err), utilnet.IsHTTP2ConnectionLost(err), utilnet.IsProbableEOF(err):
		return true
	case errors.As(err, &asked):
		return !strings.Contains(err.Error(), "x509:")
	default:
		return false
	}
}

// Explain turns what a request returned into what went wrong and what to do, with the exit code
// that belongs to it. what is what was tried, as in "list instances".
func Explain(what string, err error) error {
	var known *console.Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	fail := func(code int, format string, args ...any) error {
		return console.Errorf(code, "%w", &explainedError{fmt.Sprintf(format, args...), err})
	}
	text := console.OneLine(err.Error())
	switch {
	case errors.Is(err, context.Canceled):
		return console.Errorf(console.ExitInterrupted, "interrupted")
	case errors.Is(err, context.DeadlineExceeded):
		return console.Errorf(console.ExitTimeout, "%s: not done in time", what)
	case clientcmd.IsEmptyConfig(err):
		return console.Errorf(console.ExitUnreachable, "no cluster is configured: set KUBECONFIG, or say --kubeconfig")
	case apierrors.IsUnauthorized(err):
		return fail(console.ExitForbidden, "%s: the API server does not know you: log in again (kubectl auth whoami)", what)
	case apierrors.IsForbidden(err):
		return fail(console.ExitForbidden, "%s: %s. Ask the administrator for a binding to the ClusterRole "+
			"berg-operator-challengeinstance-editor (viewer to read); kubectl berg doctor shows which rights you have", what, text)
	case notServed(err):
		return fail(console.ExitNotFound, "%s: this cluster does not serve %s: install the operator, "+
			"or choose another cluster with --context", what, group)
	case apierrors.IsNotFound(err):
		return fail(console.ExitNotFound, "%s: %s", what, text)
	case Transient(err):
		return fail(console.ExitUnreachable, "%s: the API server cannot be reached: %s", what, text)
	default:
		return fail(console.ExitFailed, "%s: %s", what, text)
	}
}

// explainedError says in words for people what went wrong, and keeps what it was made of: callers
// that go on ask it whether that may pass.
type explainedError struct {
	text  string
	cause error
}

func (e *explainedError) Error() string { return e.text }
func (e *explainedError) Unwrap() error { return e.cause }

// group is the one that all commands need.
const group = "berg.norelect.ch/v1"

// notServed reports whether the API server does not know the kind at all. It then names no
// resource.
func notServed(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details == nil || details.Name == "" && (details.Kind == "" || strings.Contains(err.Error(), "could not find the requested resource"))
}

// NotServed reports whether the API server does not know the kind that was asked for.
func NotServed(err error) bool { return notServed(err) }

// Unreadable describes what the user may not read, "" if the error says something else.
func Unreadable(what string, err error) string {
	if apierrors.IsForbidden(err) {
		return fmt.Sprintf("you may not read %s", what)
	}
	return ""
}

func negotiated() runtime.NegotiatedSerializer {
	scheme, _ := kinds()
	return serializer.NewCodecFactory(scheme).WithoutConversion()
}
