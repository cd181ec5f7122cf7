// Package poll waits for conditions that cannot be watched.
package poll

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Wait sleeps or returns the reason why there is nothing left to wait for.
func Wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// Until calls check until it returns nil. When the context ends first, it returns what check said last.
func Until(ctx context.Context, check func(context.Context) error) error {
	for pause := 20 * time.Millisecond; ; pause = min(pause*3/2, 500*time.Millisecond) {
		err := check(ctx)
		if err == nil {
			return nil
		}
		var final *finalError
		if errors.As(err, &final) {
			return err
		}
		if ended := Wait(ctx, pause); ended != nil {
			return fmt.Errorf("%w: %w", ended, err)
		}
	}
}

// Final makes an error end a poll: waiting longer changes nothing.
func Final(err error) error { return &finalError{err} }

type finalError struct{ err error }

func (e *finalError) Error() string { return e.err.Error() }

func (e *finalError) Unwrap() error { return e.err }
