package expiry

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

var (
	noon   = time.Date(2025, 6, 1, 12, 0, 0, 0, time.UTC)
	things = schema.GroupResource{Resource: "things"}
)

// cached is a cache with one resource, or without.
type cached struct {
	client.Client
	resource *corev1.ConfigMap
	err      error
}

func (c *cached) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if c.err != nil {
		return c.err
	}
	if c.resource == nil {
		return apierrors.NewNotFound(things, key.Name)
	}
	c.resource.DeepCopyInto(into.(*corev1.ConfigMap))
	return nil
}

type why string

// budget is a controller of resources with a lifetime in an annotation.
type budget struct {
	Controller[*corev1.ConfigMap, why]
	clock          *clocktesting.FakePassiveClock
	cache          *cached
	answer         error
	asked, blocked int
	ended          why
}

func newBudget(lifetime string) *budget {
	r := &budget{clock: clocktesting.NewFakePassiveClock(noon), cache: &cached{resource: &corev1.ConfigMap{}}}
	r.cache.resource.CreationTimestamp = metav1.NewTime(noon)
	r.cache.resource.Annotations = map[string]string{"lifetime": lifetime}
	r.Controller = Controller[*corev1.ConfigMap, why]{
		New:     func() *corev1.ConfigMap { return &corev1.ConfigMap{} },
		Client:  r.cache,
		Clock:   r.clock,
		Metrics: reconcile.NewMetrics("thing", "Failures."),
		Due: func(c *corev1.ConfigMap, now time.Time) (why, time.Time) {
			d, err := time.ParseDuration(c.Annotations["lifetime"])
			if err != nil {
				return "", time.Time{}
			}
			at := c.CreationTimestamp.Add(d)
			if now.Before(at) {
				return "", at
			}
			return "TimeOver", at
		},
		End:     func(context.Context, *corev1.ConfigMap, why) error { r.asked++; return r.answer },
		Ended:   func(_ *corev1.ConfigMap, w why) { r.ended = w },
		Blocked: func(context.Context, *corev1.ConfigMap, why, error, time.Time) { r.blocked++ },
		delays:  newDelays(),
	}
	return r
}

func (r *budget) look(t *testing.T) ctrl.Result {
	t.Helper()
	result, err := r.Reconcile(t.Context(), ctrl.Request{})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func TestAResourceEndsOnTimeAndNotBefore(t *testing.T) {
	for _, lifetime := range []time.Duration{2 * time.Second, 30 * time.Minute} {
		r := newBudget(lifetime.String())
		if got := r.look(t).RequeueAfter; got != lifetime || r.asked > 0 {
			t.Errorf("%s: looked at again after %s, asked %d times", lifetime, got, r.asked)
		}
		r.clock.SetTime(noon.Add(lifetime - time.Millisecond))
		if got := r.look(t).RequeueAfter; got != time.Millisecond || r.asked > 0 {
			t.Errorf("%s, just before: again after %s, asked %d times", lifetime, got, r.asked)
		}
		r.clock.SetTime(noon.Add(lifetime))
		if result := r.look(t); !result.IsZero() || r.asked != 1 || r.ended != "TimeOver" {
			t.Errorf("%s, at its time: %+v, asked %d times, ended %q", lifetime, result, r.asked, r.ended)
		}
	}
}

func TestResourcesThatDoNotExpireAreLeftAlone(t *testing.T) {
	exempt := newBudget("")
	exempt.clock.SetTime(noon.Add(1000 * time.Hour))
	gone := newBudget("1s")
	gone.cache.resource = nil
	ending := newBudget("1s")
	ending.cache.resource.DeletionTimestamp = &metav1.Time{Time: noon}
	ending.clock.SetTime(noon.Add(time.Hour))
	for name, r := range map[string]*budget{"exempt": exempt, "gone": gone, "ending": ending} {
		if result := r.look(t); !result.IsZero() || r.asked > 0 {
			t.Errorf("%s: %+v, asked %d times", name, result, r.asked)
		}
	}
	late := newBudget("1s")
	late.cache.err = errors.New("the cache waits")
	if _, err := late.Reconcile(t.Context(), ctrl.Request{}); !errors.Is(err, late.cache.err) {
		t.Errorf("a cache that does not answer: %v", err)
	}
}

func TestFailedDeletionsAreRetried(t *testing.T) {
	over := func(answer error) *budget {
		r := newBudget("1s")
		r.clock.SetTime(noon.Add(time.Minute))
		r.answer = answer
		return r
	}
	for name, tc := range map[string]struct {
		answer error
		// again is the first delay, blocked the number of attempts until Blocked is called; 0: never.
		again   time.Duration
		blocked int
	}{
		"gone":      {apierrors.NewNotFound(things, "a"), 0, 0},
		"extended":  {apierrors.NewConflict(things, "a", nil), failedDelays.First, 0},
		"refused":   {apierrors.NewForbidden(things, "a", nil), failedDelays.First, 1},
		"no answer": {errors.New("connection refused"), failedDelays.First, 2},
	} {
		r := over(tc.answer)
		for n := 1; n <= 3; n++ {
			got := r.look(t).RequeueAfter
			if n == 1 && got != tc.again || n > 1 && got < tc.again {
				t.Errorf("%s: again after %s, attempt %d", name, got, n)
			}
			want := 0
			if tc.blocked > 0 {
				want = max(0, n-tc.blocked+1)
			}
			if r.blocked != want || r.ended != "" {
				t.Errorf("%s: Blocked was called %d times in %d attempts, want %d", name, r.blocked, n, want)
			}
		}
		r.answer = nil
		if result := r.look(t); !result.IsZero() || r.ended == "" || r.delays.lasts(ctrl.Request{}) {
			t.Errorf("%s: in the end %+v", name, result)
		}
	}

	stopped, stop := context.WithCancel(t.Context())
	stop()
	r := over(stopped.Err())
	if result, err := r.Reconcile(stopped, ctrl.Request{}); err != nil || !result.IsZero() || r.blocked > 0 {
		t.Errorf("a shutdown: %+v, %v", result, err)
	}
}
