package bulk

import (
	"context"
	"maps"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/test/lib/apiserver"
)

// Observer records when each resource was first seen in a state. It watches: to list hundreds repeatedly would cost the
// API server more than the resources do.
type Observer struct {
	mu sync.Mutex
	at map[string]time.Time
}

// Observe watches the resources of a list's kind in a namespace, or in all, until the spec ends. reached reports whether
// one is in the state.
func Observe[T client.Object](ctx context.Context, list client.ObjectList, namespace string, reached func(T) bool) *Observer {
	GinkgoHelper()
	o := &Observer{at: map[string]time.Time{}}
	changes := apiserver.Changes(ctx, list, namespace)
	go func() {
		for e := range changes {
			if object, ok := e.Object.(T); ok && reached(object) {
				o.see(client.ObjectKeyFromObject(object).String())
			}
		}
	}()
	return o
}

func (o *Observer) see(key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.at[key].IsZero() {
		o.at[key] = time.Now()
	}
}

// Times returns when each resource was first seen in the state, by namespace and name.
func (o *Observer) Times() map[string]time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.at)
}

// Await waits until n resources were in the state, and returns when the first and the last one were.
func (o *Observer) Await(n int) (first, last time.Time) {
	GinkgoHelper()
	Eventually(func() int { return len(o.Times()) }).WithTimeout(20 * time.Minute).WithPolling(20 * time.Millisecond).Should(Equal(n))
	for _, at := range o.Times() {
		if first.IsZero() || at.Before(first) {
			first = at
		}
		if at.After(last) {
			last = at
		}
	}
	return first, last
}
