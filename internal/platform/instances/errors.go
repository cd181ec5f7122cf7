package instances

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/bergctf/berg-operator/internal/berg/redact"
	"github.com/bergctf/berg-operator/internal/kit/refusal"
)

// Kind classifies an Error by the action that is open to the caller.
type Kind int

// The kinds of errors.
const (
	// NotFound: there is no such challenge or instance.
	NotFound Kind = iota
	// Exists: there is one already.
	Exists
	// Invalid: the request is wrong in every state.
	Invalid
	// Refused: the request is right, and the state does not allow it.
	Refused
	// Exhausted: a limit or budget is reached.
	Exhausted
)

// Error is shown to the platform unchanged. It contains no flag. Every other error is answered with a general text, and only the
// log has it.
type Error struct {
	Kind Kind
	// Message is for organisers.
	Message string
	// Players is a sentence for players. It names nothing of the cluster. "": the endpoint has one for the Kind.
	Players string
}

func (e *Error) Error() string { return e.Message }

// Fail returns an Error.
func Fail(kind Kind, format string, args ...any) error {
	return failPlayers(kind, "", format, args...)
}

// failPlayers is Fail with a sentence for players.
func failPlayers(kind Kind, players, format string, args ...any) error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...), Players: players}
}

// Is reports whether an error is an Error of a kind.
func Is(err error, kind Kind) bool {
	var e *Error
	return errors.As(err, &e) && e.Kind == kind
}

// explain converts an error of the API server that a platform can correct into an Error. Other errors stay internal,
// because their texts may name parts of a spec: they are for the log. A rule of the API may quote the flag.
func explain(err error, flag string) error {
	switch {
	case apierrors.IsInvalid(err):
		var status apierrors.APIStatus
		if errors.As(err, &status) && status.Status().Details != nil {
			for _, cause := range status.Status().Details.Causes {
				return Fail(Invalid, "the instance is refused: %s", redact.Text(cause.Message, flag))
			}
		}
		return Fail(Invalid, "the instance is refused by the API server")
	case isQuota(err):
		return Fail(Exhausted, "the organisers' cluster takes no more instances: a quota is used up")
	case apierrors.IsForbidden(err):
		return fmt.Errorf("the API server refuses: %w", err)
	default:
		return err
	}
}

// isQuota reports whether a quota of the cluster refuses an object. It counts as a limit, which platforms show.
func isQuota(err error) bool {
	if !apierrors.IsForbidden(err) {
		return false
	}
	meaning, known := refusal.Explain(err.Error())
	return known && meaning.Kind == refusal.Quota
}
