package poll

import (
	"context"
	"errors"
	"testing"
)

func TestPoll(t *testing.T) {
	calls := 0
	err := Until(t.Context(), func(context.Context) error {
		if calls++; calls < 3 {
			return errors.New("not yet")
		}
		return nil
	})
	if err != nil || calls != 3 {
		t.Errorf("got %v after %d calls", err, calls)
	}
	calls = 0
	final := errors.New("never")
	err = Until(t.Context(), func(context.Context) error { calls++; return Final(final) })
	if !errors.Is(err, final) || calls != 1 {
		t.Errorf("a final error: got %v after %d calls", err, calls)
	}
}
