package jobs

import (
	"context"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(1, nil)
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer queue.ShutDown()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		if err := w.Source().Start(ctx, queue); err != nil {
			t.Fatal(err)
		}
		release := make(chan int)
		count := 0
		do := func(what string) (int, bool) {
			return Do(w, "u", "name", "kind", what, func(context.Context) int { count++; return <-release })
		}
		if _, done := do("a"); done {
			t.Fatal("it is done before it began")
		}
		if _, done := do("b"); done || !w.Busy("u") {
			t.Fatal("what is under way is not completed first")
		}
		release <- 1
		synctest.Wait()
		if got, done := do("a"); !done || got != 1 || count != 1 {
			t.Fatalf("%d, %t after %d times", got, done, count)
		}
		if queue.Len() != 1 {
			t.Fatal("nobody was called")
		}
		if got, done := Last[int](w, "u", "kind"); !done || got != 1 {
			t.Fatal("the last result is forgotten")
		}
		if _, done := do("b"); done {
			t.Fatal("another piece is the same")
		}
		release <- 2
		synctest.Wait()
		if got, done := do("b"); !done || got != 2 {
			t.Fatal("another result")
		}
		w.Again("u", "kind")
		if _, done := do("b"); done {
			t.Fatal("it did not begin anew")
		}
		release <- 3
		synctest.Wait()
		w.Forget("u")
		if _, done := Last[int](w, "u", "kind"); done || w.Busy("u") {
			t.Fatal("it was not forgotten")
		}
	})
}

// Of one kind, however many wait for somebody who does not answer: others have turns of their own.
func TestKindsDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(2, map[string]int{"image": 1})
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer queue.ShutDown()
		if err := w.Source().Start(ctx, queue); err != nil {
			t.Fatal(err)
		}
		release := make(chan struct{})
		images := 0
		for _, uid := range []types.UID{"a", "b", "c"} {
			Do(w, uid, "name", "image", "", func(context.Context) bool {
				images++
				<-release
				return true
			})
			Do(w, uid, "name", "wait", "", func(ctx context.Context) bool { <-ctx.Done(); return true })
		}
		synctest.Wait()
		if images != 1 {
			t.Errorf("%d images are built at the same time, want 1", images)
		}
		call := func() bool {
			_, done := Do(w, "d", "name", "call", "", func(context.Context) bool { return true })
			return done
		}
		call()
		synctest.Wait()
		if !call() {
			t.Error("a call waits for images and waits")
		}

		// What has not begun need not be completed.
		w.Withdraw("a")
		w.Withdraw("b")
		w.Withdraw("c")
		synctest.Wait()
		busy := 0
		for _, uid := range []types.UID{"a", "b", "c"} {
			w.Cancel(uid, "wait")
			synctest.Wait()
			if w.Busy(uid) {
				busy++
			}
		}
		if busy != 1 {
			t.Errorf("%d are busy, want the one whose image is being built", busy)
		}
		close(release)
		synctest.Wait()
		if images != 1 {
			t.Errorf("%d images were built, of which nobody wants 2", images)
		}
		stop()
		synctest.Wait()
	})
}
