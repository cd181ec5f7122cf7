package expiry

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestDelaysBetweenAttemptsGrowAndAreShared(t *testing.T) {
	rejected := apierrors.NewForbidden(schema.GroupResource{}, "a", errors.New("not today"))
	of := func(n int) reconcile.Request {
		return reconcile.Request{NamespacedName: types.NamespacedName{Name: strconv.Itoa(n)}}
	}
	for name, tc := range map[string]struct {
		err       error
		limit     time.Duration
		perSecond int
	}{
		"no answer": {errors.New("connection refused"), failedDelays.Max, maxAttempts},
		"rejected":  {fmt.Errorf("delete the instance: %w", rejected), rejectedDelays.Max, maxRejectedAttempts},
	} {
		d := newDelays()
		var last time.Duration
		for n := range 20 {
			delay := d.after(of(0), tc.err)
			if n == 0 && delay != failedDelays.First || delay < last {
				t.Fatalf("%s: delay %d is %s after one of %s", name, n, delay, last)
			}
			last = delay
		}
		if last != tc.limit {
			t.Errorf("%s: the longest delay is %s, want %s", name, last, tc.limit)
		}
		if !d.lasts(of(0)) || d.lasts(of(1)) {
			t.Errorf("%s: only what fails lasts", name)
		}
		d.forget(of(0))
		if d.lasts(of(0)) {
			t.Errorf("%s: it is not forgotten", name)
		}

		// A thousand that fail together are not all retried together.
		d = newDelays()
		for n := range 1000 {
			last = d.after(of(n), tc.err)
		}
		if want := time.Duration(800/tc.perSecond) * time.Second; last < want {
			t.Errorf("%s: the last of a thousand is tried after %s, want %s or more", name, last, want)
		}
	}
}
