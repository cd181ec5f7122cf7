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
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
)

var errNoAnswer = errors.New("the API server did not answer")

// Transient reports whether the next attempt may succeed: there was no connection, no answer, or the
// answer was to retry.
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

// Explain turns the error of a request into one that says what failed and what to do, with an exit code.
// what is the action, as in "list instances".
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
		return console.Errorf(console.ExitTimeout, "%s: timed out", what)
	case clientcmd.IsEmptyConfig(err):
		return console.Errorf(console.ExitUnreachable, "no cluster is configured: set KUBECONFIG, or use --kubeconfig")
	case apierrors.IsUnauthorized(err):
		return fail(console.ExitForbidden, "%s: the API server does not accept your credentials: log in again (check with kubectl auth whoami)", what)
	case apierrors.IsForbidden(err):
		return fail(console.ExitForbidden, "%s: %s. %s", what, text, remedy(text))
	case NotServed(err):
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

// remedy says what to ask for, by the API server's words about what is forbidden.
func remedy(text string) string {
	const more = "; kubectl berg doctor shows your permissions"
	var role string
	switch {
	case strings.Contains(text, `"challengeinstances`):
		role = "berg-operator-challengeinstance-editor (or -viewer to read)"
	case strings.Contains(text, `"challenges"`) && strings.Contains(text, "berg.norelect.ch"):
		role = "berg-operator-challenge-viewer (or -editor to write)"
	default:
		return "The roles for players and authors do not grant this: ask the administrator for the right that the message names" + more
	}
	if strings.Contains(text, "at the cluster scope") {
		return "Name one of your namespaces with -n, without -A. Or ask the administrator for a ClusterRoleBinding to " + role + more
	}
	return "Ask the administrator for a RoleBinding in this namespace to the ClusterRole " + role + more
}

// explainedError has a message for people and wraps the original error, so that callers can still test
// whether it is transient.
type explainedError struct {
	text  string
	cause error
}

func (e *explainedError) Error() string { return e.text }

func (e *explainedError) Unwrap() error { return e.cause }

// group is the API that all commands need.
const group = "berg.norelect.ch/v1"

// NotServed reports whether the API server does not serve the kind at all. Its answer then names no
// resource.
func NotServed(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details == nil || details.Name == "" && (details.Kind == "" || strings.Contains(err.Error(), "could not find the requested resource"))
}
