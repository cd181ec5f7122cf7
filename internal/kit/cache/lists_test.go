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

func TestListsTakeTurnsAndNoneKeepsAllWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		began := make(chan time.Duration, 2*listsAtOnce)
		turns := make(chan struct{}, listsAtOnce)
		for range 2 * listsAtOnce {
			stuck := &lists{turns: turns, from: toolscache.ToListerWatcherWithContext(&toolscache.ListWatch{
				ListWithContextFunc: func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
					began <- time.Since(start)
					<-ctx.Done()
					return nil, ctx.Err()
				},
			})}
			go func() { _, _ = stuck.list(t.Context(), metav1.ListOptions{}) }()
		}
		for n := range 2 * listsAtOnce {
			want := time.Duration(n/listsAtOnce) * maxTurn
			if got := <-began; got != want {
				t.Errorf("list %d began after %v, want %v", n, got, want)
			}
		}
	})
}
