package console

import (
	"errors"
	"fmt"
)

// The exit codes of the program. docs/kubectl-berg.md lists them.
const (
	// ExitOK: done, no problem found.
	ExitOK = 0
	// ExitFailed: failed for a reason that has no code of its own.
	ExitFailed = 1
	// ExitUsage: the command line is invalid; nothing was done.
	ExitUsage = 2
	// ExitNotFound: the instance, Challenge or API does not exist.
	ExitNotFound = 3
	// ExitProblem: the command succeeded and found a problem.
	ExitProblem = 4
	// ExitTimeout: timed out.
	ExitTimeout = 5
	// ExitPartly: some of many failed; the same command does the rest.
	ExitPartly = 6
	// ExitForbidden: this user is not allowed to do it.
	ExitForbidden = 7
	// ExitUnreachable: the API server, or the service of an instance, cannot be reached.
	ExitUnreachable = 8
	// ExitInterrupted: Ctrl-C before the work was done, or a question was answered with no.
	ExitInterrupted = 130
)

// Error is an error with its exit code.
type Error struct {
	Code int
	Err  error
	// Silent means that the error was already shown: only its code counts.
	Silent bool
}

// Error returns the text of the error.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the wrapped error.
func (e *Error) Unwrap() error { return e.Err }

// Errorf returns an error with an exit code.
func Errorf(code int, format string, args ...any) error {
	return &Error{Code: code, Err: fmt.Errorf(format, args...)}
}

// Silentf returns an error that was already shown and only sets the exit code.
func Silentf(code int, format string, args ...any) error {
	return &Error{Code: code, Err: fmt.Errorf(format, args...), Silent: true}
}

// Code returns the exit code of an error. Errors of other packages have ExitFailed.
func Code(err error) int {
	var known *Error
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &known):
		return known.Code
	default:
		return ExitFailed
	}
}
