// Package connection has the one configuration with which every program reaches the API server.
package connection

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
)

// Configure returns a copy of a configuration without a limit of requests, and without warnings in the log.
func Configure(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	// The API server limits requests by priority and fairness; a limit of the client would
	// only add delay. Zero means the client's default, so it must be negative.
	config.QPS, config.Burst = -1, 0
	// Warnings of admission may quote the written object, flags and keys included, and the client would log
	// them.
	config.WarningHandler, config.WarningHandlerWithContext = nil, rest.NoWarnings{}
	return config
}

// WithoutMessage returns an error of the same kind that does not quote the API server: a refusal of a Secret may repeat
// its content. errors.As and the functions of apierrors still find the API server's error in it.
func WithoutMessage(err error) error {
	if reason := apierrors.ReasonForError(err); reason != "" {
		return unquotedError{err, string(reason)}
	}
	return err
}

type unquotedError struct {
	error
	reason string
}

func (e unquotedError) Error() string {
	return fmt.Sprintf("the API server refuses it (%s); its message is not shown, because it may quote the content", e.reason)
}

func (e unquotedError) Unwrap() error { return e.error }
