package expect

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/limits"
)

// ReasonContested is what a condition of either family says of an object that another client
// changes or deletes again and again.
const ReasonContested = "Contested"

// Contests watches the resources of a list and returns what their conditions have said
// since of objects that another client keeps modifying.
func Contests(ctx context.Context, list client.ObjectList, opts ...client.ListOption) func() []string {
	GinkgoHelper()
	w, err := apiserver.Client.Watch(ctx, list, opts...)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(w.Stop)
	var mu sync.Mutex
	var found []string
	go func() {
		defer GinkgoRecover()
		for e := range w.ResultChan() {
			if e.Type == watch.Error {
				continue
			}
			for _, c := range statusOf(e.Object).Conditions {
				if c.Reason == ReasonContested {
					mu.Lock()
					found = append(found, strings.Join([]string{c.Type, c.Reason, c.Message}, " "))
					mu.Unlock()
				}
			}
		}
	}()
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(found)
	}
}

// AsQuick checks that the last five of many took no longer than the first five. What it
// allows is for a busy machine; a pause begins with a second, and doubles.
func AsQuick(took []time.Duration) {
	GinkgoHelper()
	first, last := Median(took[:5]), Median(took[len(took)-5:])
	AddReportEntry("times", fmt.Sprintf("median of the first five %s, of the last five %s", first.Round(time.Millisecond), last.Round(time.Millisecond)))
	Expect(last).To(BeNumerically("<=", 3*first+limits.Scaled(500*time.Millisecond)), "all: %v", took)
}

// Median returns the one in the middle, in whole milliseconds.
func Median(all []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2].Round(time.Millisecond)
}
