package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strings"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/tools/clientcmd"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
	"github.com/bergctf/berg-operator/internal/kit/refusal"
)

// errNoAnswer is the end of one attempt, in contrast to the end of the command's own time.
var errNoAnswer = errors.New("the API server did not answer")

// Transient reports whether the next attempt may succeed: there was no connection, no answer, or the
// answer was to retry. The failed attempt may have had its effect.
func Transient(err error) bool {
	var network net.Error
	switch {
	case err == nil, errors.Is(err, context.Canceled), isUntrusted(err):
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
	default:
		return false
	}
}

// isUntrusted reports whether the certificate of the API server was refused. The error of the request that has it is also a
// network error.
func isUntrusted(err error) bool {
	var untrusted *tls.CertificateVerificationError
	return errors.As(err, &untrusted)
}

// Explain converts the error of a request into one that names the failed action and a remedy, with an exit code. action
// is a phrase such as "list instances". An error that was explained already stays as it is.
func Explain(action string, err error) error {
	var known *console.Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	fail := func(code int, format string, args ...any) error {
		return console.Errorf(code, "%w", &explainedError{fmt.Sprintf(format, args...), err})
	}
	text := console.OneLine(err.Error())
	meaning, refused := refusal.Explain(text)
	switch {
	case errors.Is(err, context.Canceled):
		return console.Errorf(console.ExitInterrupted, "interrupted")
	case errors.Is(err, context.DeadlineExceeded):
		return console.Errorf(console.ExitTimeout, "%s: timed out", action)
	case clientcmd.IsEmptyConfig(err):
		return console.Errorf(console.ExitUnreachable, "no cluster is configured: set KUBECONFIG, or use --kubeconfig")
	case apierrors.IsUnauthorized(err):
		return fail(console.ExitForbidden, "%s: the API server does not accept your credentials: log in again (check with kubectl auth whoami)", action)
	case isUntrusted(err):
		return fail(console.ExitUnreachable, "%s: %s. Check the certificate authority, the address and the clock: kubectl config view", action, text)
	case refused && meaning.Kind != refusal.Rights && meaning.Kind != refusal.Trouble:
		return fail(console.ExitFailed, "%s: %s. %s", action, strings.TrimRight(text, "."), meaning.Do)
	case apierrors.IsForbidden(err):
		return fail(console.ExitForbidden, "%s: %s. %s", action, text, Remedy(text))
	case NotServed(err):
		return fail(console.ExitNotFound, "%s: this cluster does not serve %s: install the operator, "+
			"or choose another cluster with --context", action, group)
	case apierrors.IsNotFound(err):
		return fail(console.ExitNotFound, "%s: %s", action, text)
	case Transient(err):
		return fail(console.ExitUnreachable, "%s: the API server cannot be reached: %s", action, text)
	default:
		return fail(console.ExitFailed, "%s: %s", action, text)
	}
}

// refusedRequest finds the verb, the resource, its group and the namespace in the words of the API server.
var refusedRequest = regexp.MustCompile(`cannot (\w+) resource "([^"]+)" in API group "([^"]*)"(?: in the namespace "([^"]+)")?`)

// roleNames are the prefixes of the ClusterRoles for a resource; each has a viewer and an editor.
var roleNames = map[string]string{
	"challengeinstances": "berg-operator-challengeinstance", "challenges": "berg-operator-challenge",
	"challengechecks": "berg-operator-challengecheck", "challengeinstancerecords": "berg-operator-challengeinstancerecord",
}

// RoleFor returns the ClusterRole for players and authors that grants a verb on a resource of Berg; "" where none does.
func RoleFor(verb, resource string) string {
	kind, _, _ := strings.Cut(resource, "/")
	role := roleNames[kind]
	switch {
	case role == "":
		return ""
	case slices.Contains([]string{"get", "list", "watch"}, verb):
		return role + "-viewer"
	default:
		return role + "-editor"
	}
}

// Remedy names the permission to ask for, by the verb that was refused.
func Remedy(text string) string {
	const hint = "kubectl berg doctor shows your permissions"
	found := refusedRequest.FindStringSubmatch(text)
	if found == nil {
		return "The roles for players and authors do not grant this: ask the administrator for the right that the message names; " + hint
	}
	verb, resource, apiGroup, namespace := found[1], found[2], found[3], found[4]
	option, scope := "-A", "ClusterRoleBinding"
	if namespace != "" {
		option, scope = "-n "+namespace, "RoleBinding in this namespace"
	}
	check := fmt.Sprintf("; afterwards, kubectl auth can-i %s %s %s must say yes. ", verb, strings.TrimSuffix(resource+"."+apiGroup, "."), option) + hint
	role := ""
	if apiGroup == bergv1.GroupVersion.Group {
		role = RoleFor(verb, resource)
	}
	if role == "" {
		return fmt.Sprintf("The roles for players and authors do not grant this: ask the administrator for the right to %s %s%s", verb, resource, check)
	}
	advice := "Ask the administrator for a " + scope + " to the ClusterRole " + role + check
	if namespace == "" {
		advice = "Name one of your namespaces with -n, without -A. Or ask" + strings.TrimPrefix(advice, "Ask")
	}
	return advice
}

// explainedError has a message for people and wraps the original error, so that callers can still test
// whether it is transient.
type explainedError struct {
	text  string
	cause error
}

// Error returns the text for people.
func (e *explainedError) Error() string { return e.text }

// Unwrap returns the error of the request.
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
