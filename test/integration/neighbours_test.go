package integration

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// slowest is how much longer a start may take beside the crowd of another owner: the
// median of several, as a share of that of the same operator on the same machine while it
// has nothing else to do.
const slowest = 1.5

var _ = Describe("An owner with hundreds of instances", Serial, func() {
	It("does not slow the starts of others, nor costs a write for each at every turn", func(ctx context.Context) {
		crowd, err := strconv.Atoi(cmp.Or(os.Getenv("CROWD_OF_ONE_OWNER"), "500"))
		Expect(err).NotTo(HaveOccurred())
		ns := newNamespace(ctx)
		challenge(ctx, ns, "shared", oneContainer)
		written := &writes{}
		instead(clock.RealClock{}, cfg, written.wrap)
		s := newStopwatch(ctx)
		s.starts(ctx, 3) // connections are made, and code is there
		alone := s.starts(ctx, 9)

		By("creating them")
		id := uuid.NewString()
		all := make([]*bergv1.ChallengeInstance, crowd)
		var creators sync.WaitGroup
		const atOnce = 4
		for n := range atOnce {
			creators.Go(func() {
				defer GinkgoRecover()
				for i := n; i < crowd; i += atOnce {
					all[i] = instance(ctx, ns, "shared", func(i *bergv1.ChallengeInstance) { i.Spec.OwnerID = id })
				}
			})
		}
		creators.Wait()
		judged := s.starts(ctx, 9)
		first := onlyOneRuns(ctx, all)

		By("letting them wait")
		waited := s.starts(ctx, 9)

		By("ending the one that runs, again and again")
		slices.SortFunc(all, byAge)
		before := written.count()
		var handedOver []time.Duration
		const turns = 3
		for range turns {
			Expect(all[0].UID).To(Equal(first), "another one than the oldest runs")
			Expect(k8s.Delete(ctx, all[0])).To(Succeed())
			handedOver = append(handedOver, s.starts(ctx, 3)...)
			all = all[1:]
			reaches(ctx, all[0], bergv1.PhaseRunning)
			first = all[0].UID
		}
		names := map[string]bool{}
		for _, i := range all[1:] {
			names[i.Name] = true
		}
		rewritten := written.of(before, func(path string) bool {
			_, rest, _ := strings.Cut(path, "/challengeinstances/")
			name, _, _ := strings.Cut(rest, "/")
			return names[name]
		})
		Expect(rewritten).To(BeNumerically("<=", turns), "writes to those that wait")
		onlyOneRuns(ctx, all)
		Expect(conditions(all[1])).To(ContainSubstring(ns + "/" + all[0].Name))

		By("deleting all of them at once")
		Expect(k8s.DeleteAllOf(ctx, &bergv1.ChallengeInstance{}, client.InNamespace(ns))).To(Succeed())
		ended := s.starts(ctx, 9)
		for _, i := range all {
			gone(ctx, i)
		}
		alone = append(alone, s.starts(ctx, 9)...)

		usual := median(alone)
		report := fmt.Sprintf("median time to Running: %s alone", usual)
		for _, m := range []struct {
			when string
			took []time.Duration
		}{{"while they are looked at", judged}, {"while they wait", waited}, {"while they take turns", handedOver}, {"while they are deleted", ended}} {
			report += fmt.Sprintf(", %s %s (%.2f)", median(m.took), m.when, float64(median(m.took))/float64(usual))
		}
		AddReportEntry("neighbours", report)
		for _, took := range [][]time.Duration{judged, waited, handedOver, ended} {
			Expect(median(took)).To(BeNumerically("<=", time.Duration(slowest*float64(usual))), report)
		}
	}, SpecTimeout(20*time.Minute))
})

// stopwatch takes the time of instances from just before their creation.
type stopwatch struct {
	namespace string
	seen      <-chan watch.Event
}

// newStopwatch measures in a namespace of its own.
func newStopwatch(ctx context.Context) *stopwatch {
	GinkgoHelper()
	s := &stopwatch{namespace: newNamespace(ctx)}
	w, err := k8s.Watch(context.WithoutCancel(ctx), &bergv1.ChallengeInstanceList{}, client.InNamespace(s.namespace))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(w.Stop)
	s.seen = w.ResultChan()
	challenge(ctx, s.namespace, "shared", oneContainer)
	return s
}

// starts starts instances one after the other, each of another owner, and ends each before
// the next.
func (s *stopwatch) starts(ctx context.Context, n int) []time.Duration {
	GinkgoHelper()
	took := make([]time.Duration, n)
	for k := range took {
		began := time.Now()
		i := instance(ctx, s.namespace, "shared")
		for took[k] == 0 {
			select {
			case e, ok := <-s.seen:
				Expect(ok).To(BeTrue(), "the watch ended")
				if seen, ok := e.Object.(*bergv1.ChallengeInstance); ok && seen.UID == i.UID && seen.Status.Phase == bergv1.PhaseRunning {
					took[k] = time.Since(began)
				}
			case <-ctx.Done():
				Fail("an instance does not start")
			}
		}
		Expect(k8s.Delete(ctx, i)).To(Succeed())
		gone(ctx, i)
	}
	return took
}

func median(all []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2].Round(time.Millisecond)
}

// writes notes where an operator writes to.
type writes struct {
	mu    sync.Mutex
	paths []string
}

func (w *writes) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.Method != http.MethodGet {
			w.mu.Lock()
			w.paths = append(w.paths, r.URL.Path)
			w.mu.Unlock()
		}
		return next.RoundTrip(r)
	})
}

func (w *writes) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.paths)
}

// of counts the writes after some number of them to paths that match.
func (w *writes) of(after int, match func(path string) bool) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, path := range w.paths[after:] {
		if match(path) {
			n++
		}
	}
	return n
}
