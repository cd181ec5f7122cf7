package console

import (
	"errors"
	"fmt"
)

// The exit codes of the program, for scripts. docs/kubectl-berg.md lists them.
const (
	// ExitOK: done, and nothing is wrong.
	ExitOK = 0
	// ExitFailed: it did not work, for a reason that none of the others names.
	ExitFailed = 1
	// ExitUsage: the command line cannot be understood; nothing was done.
	ExitUsage = 2
	// ExitNotFound: there is no such instance, Challenge or API.
	ExitNotFound = 3
	// ExitProblem: the command did its work and found something wrong.
	ExitProblem = 4
	// ExitTimeout: it did not happen in time.
	ExitTimeout = 5
	// ExitPartly: of many some could not be done; the same command does the rest.
	ExitPartly = 6
	// ExitForbidden: the cluster does not let this user do it.
	ExitForbidden = 7
	// ExitUnreachable: the API server cannot be reached.
	ExitUnreachable = 8
	// ExitInterrupted: Ctrl-C, before the work was done.
	ExitInterrupted = 130
)

// Error is an error with the exit code that belongs to it.
type Error struct {
	Code int
	Err  error
	// Silent is one that was told already: only its code counts.
	Silent bool
}

// Error returns the text of the error.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the error itself.
func (e *Error) Unwrap() error { return e.Err }

// Errorf returns an error with an exit code.
func Errorf(code int, format string, args ...any) error {
	return &Error{Code: code, Err: fmt.Errorf(format, args...)}
}

// Warn returns an error that has been shown and only decides about the exit code.
func Warn(code int, format string, args ...any) error {
	return &Error{Code: code, Err: fmt.Errorf(format, args...), Silent: true}
}

// Code returns the exit code of an error.
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
