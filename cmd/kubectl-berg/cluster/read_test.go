package cluster

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
)

// A read is repeated while the API server does not answer, within the time that the user gave, and not after an answer.
func TestReadsAreRepeated(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no"))
	for name, tc := range map[string]struct {
		timeout time.Duration
		errs    []error
		calls   int
		notes   int
		within  time.Duration
	}{
		"an answer":             {time.Minute, []error{nil}, 1, 0, 0},
		"a restart":             {time.Minute, []error{syscall.ECONNREFUSED, apierrors.NewServiceUnavailable("starting"), nil}, 3, 2, 0},
		"a refusal":             {time.Minute, []error{forbidden}, 1, 0, 0},
		"a refusal later":       {time.Minute, []error{syscall.ECONNREFUSED, forbidden}, 2, 1, 0},
		"not wanted":            {0, []error{syscall.ECONNREFUSED}, 1, 0, 0},
		"too long":              {time.Nanosecond, []error{syscall.ECONNREFUSED}, 1, 0, 0},
		"within another's loop": {time.Minute, []error{syscall.ECONNREFUSED}, 1, 0, time.Second},
	} {
		calls, notes := 0, 0
		c := &Cluster{RetryTimeout: tc.timeout, Lost: func(error) { notes++ }, clock: clock.RealClock{}}
		ctx := t.Context()
		if tc.within > 0 {
			limited, cancel := context.WithTimeout(ctx, tc.within)
			defer cancel()
			ctx = limited
		}
		err := c.read(ctx, func(context.Context) error {
			calls++
			return tc.errs[calls-1]
		})
		if calls != tc.calls || notes != tc.notes || !errors.Is(err, tc.errs[len(tc.errs)-1]) {
			t.Errorf("%s: %d calls, %d notes, %v", name, calls, notes, err)
		}
	}
}
