package cache

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
)

func TestListsWaitForASlotForALimitedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		began := make(chan time.Duration, 2*maxLists)
		slots := make(chan struct{}, maxLists)
		for range 2 * maxLists {
			stuck := &lists{slots: slots, from: toolscache.ToListerWatcherWithContext(&toolscache.ListWatch{
				ListWithContextFunc: func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
					began <- time.Since(start)
					<-ctx.Done()
					return nil, ctx.Err()
				},
			})}
			go func() { _, _ = stuck.list(t.Context(), metav1.ListOptions{}) }()
		}
		for n := range 2 * maxLists {
			want := time.Duration(n/maxLists) * maxListWait
			if got := <-began; got != want {
				t.Errorf("list %d began after %v, want %v", n, got, want)
			}
		}
	})
}
