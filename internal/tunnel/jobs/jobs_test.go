package jobs

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// started returns a Runner and the queue of its controller.
func started(t *testing.T, limit int, limits map[string]int) (*Runner, workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	t.Helper()
	r := New(limit, limits)
	ctx, stop := context.WithCancel(t.Context())
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	t.Cleanup(func() {
		stop()
		queue.ShutDown()
		synctest.Wait()
	})
	if err := r.Source().Start(ctx, queue); err != nil {
		t.Fatal(err)
	}
	return r, queue
}

func TestJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, queue := started(t, 1, nil)
		release := make(chan int)
		count := 0
		do := func(input string) (int, bool) {
			result := Do(r, Job[int]{UID: "u", Name: "name", Kind: "kind", Input: input, Run: func(context.Context) int { count++; return <-release }}, time.Now())
			if result.Retrying {
				t.Error("a job without Retry is retried")
			}
			return result.Value, result.Done
		}
		if _, done := do("a"); done {
			t.Fatal("done before it began")
		}
		if _, done := do("b"); done || !r.Busy("u") {
			t.Fatal("the job that runs is not completed first")
		}
		release <- 1
		synctest.Wait()
		if got, done := do("a"); !done || got != 1 || count != 1 {
			t.Fatalf("%d, %t after %d runs", got, done, count)
		}
		if queue.Len() != 1 {
			t.Fatal("the custom resource is not reconciled again")
		}
		if got, done := do("a"); !done || got != 1 || count != 1 {
			t.Fatal("the last result is forgotten")
		}
		if _, done := do("b"); done {
			t.Fatal("the result of another input is returned")
		}
		release <- 2
		synctest.Wait()
		if got, done := do("b"); !done || got != 2 {
			t.Fatal("another result")
		}
		r.Forget("u")
		if _, done := do("b"); done {
			t.Fatal("the result was not forgotten")
		}
		release <- 3
		synctest.Wait()
		r.Forget("u")
		if r.Busy("u") {
			t.Fatal("it still runs")
		}
	})
}

func TestRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, queue := started(t, 1, nil)
		runs := 0
		do := func(input string) Result[int] {
			result := Do(r, Job[int]{
				UID: "u", Name: "name", Kind: "kind", Input: input,
				Run: func(context.Context) int { runs++; return runs },
				Retry: func(_, attempt int) time.Duration {
					if attempt == 3 {
						return 0
					}
					return time.Duration(attempt) * time.Second
				},
			}, time.Now())
			synctest.Wait()
			return result
		}
		take := func() {
			request, _ := queue.Get()
			queue.Done(request)
		}
		for attempt := 1; attempt <= 3; attempt++ {
			if got := do("a"); got.Done || got.Value != attempt-1 {
				t.Fatalf("attempt %d starts: %+v, want the value of the one before", attempt, got)
			}
			take() // it has ended
			got := do("a")
			if !got.Done || got.Value != attempt || got.Retrying != (attempt < 3) {
				t.Fatalf("attempt %d has ended: %+v", attempt, got)
			}
			if attempt == 3 {
				break
			}
			began := time.Now()
			take()
			if waited := time.Since(began); waited < time.Duration(attempt)*time.Second || waited > time.Duration(attempt)*time.Second+100*time.Millisecond || runs != attempt {
				t.Fatalf("after %s reconciled again, with %d runs", waited, runs)
			}
		}
		<-time.After(time.Hour)
		if got := do("a"); !got.Done || got.Retrying || runs != 3 {
			t.Errorf("after the last attempt: %+v, %d runs", got, runs)
		}
		if do("b"); runs != 4 {
			t.Error("another input does not start again")
		}
		if got := do("b"); !got.Retrying {
			t.Error("another input does not have all attempts")
		}
	})
}

// Jobs of one kind that wait for a server that does not answer delay no other kind.
func TestKindsDoNotDelayEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := started(t, 2, map[string]int{"image": 1})
		do := func(uid types.UID, kind string, run func(context.Context) bool) bool {
			return Do(r, Job[bool]{UID: uid, Name: "name", Kind: kind, Run: run}, time.Now()).Done
		}
		release := make(chan struct{})
		images := 0
		for _, uid := range []types.UID{"a", "b", "c"} {
			do(uid, "image", func(context.Context) bool {
				images++
				<-release
				return true
			})
			do(uid, "wait", func(ctx context.Context) bool { <-ctx.Done(); return true })
		}
		synctest.Wait()
		if images != 1 {
			t.Errorf("%d images are built at the same time, want 1", images)
		}
		call := func() bool { return do("d", "call", func(context.Context) bool { return true }) }
		call()
		synctest.Wait()
		if !call() {
			t.Error("a call waits for images and waits")
		}

		// Jobs that have not begun need not be completed.
		for _, uid := range []types.UID{"a", "b", "c"} {
			r.Withdraw(uid)
		}
		synctest.Wait()
		busy := 0
		for _, uid := range []types.UID{"a", "b", "c"} {
			r.Cancel(uid, "wait")
			synctest.Wait()
			if r.Busy(uid) {
				busy++
			}
		}
		if busy != 1 {
			t.Errorf("%d are busy, want the one whose image is being built", busy)
		}
		close(release)
		synctest.Wait()
		if images != 1 {
			t.Errorf("%d images were built, of which 2 are not needed", images)
		}
	})
}
