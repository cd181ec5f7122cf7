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

func TestPausesBetweenEndsGrowAndAreShared(t *testing.T) {
	refused := apierrors.NewForbidden(schema.GroupResource{}, "a", errors.New("not today"))
	of := func(n int) reconcile.Request {
		return reconcile.Request{NamespacedName: types.NamespacedName{Name: strconv.Itoa(n)}}
	}
	for name, tc := range map[string]struct {
		err       error
		longest   time.Duration
		perSecond int
	}{
		"no answer": {errors.New("connection refused"), maxDelay, maxAttempts},
		"refused":   {fmt.Errorf("delete the instance: %w", refused), maxRejectedDelay, maxRejectedAttempts},
	} {
		p := newDelays()
		var last time.Duration
		for n := range 20 {
			pause := p.after(of(0), tc.err)
			if n == 0 && pause != minDelay || pause < last {
				t.Fatalf("%s: pause %d of %s after one of %s", name, n, pause, last)
			}
			last = pause
		}
		if last != tc.longest {
			t.Errorf("%s: the longest pause is %s, want %s", name, last, tc.longest)
		}
		if !p.lasts(of(0)) || p.lasts(of(1)) {
			t.Errorf("%s: only what fails lasts", name)
		}
		p.forget(of(0))
		if p.lasts(of(0)) {
			t.Errorf("%s: it is not forgotten", name)
		}

		// A thousand that fail at once are not tried all at once again.
		p = newDelays()
		for n := range 1000 {
			last = p.after(of(n), tc.err)
		}
		if want := time.Duration(800/tc.perSecond) * time.Second; last < want {
			t.Errorf("%s: the last of a thousand is tried after %s, want %s or more", name, last, want)
		}
	}
}
