package bergtest

import (
	"context"
	"fmt"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/invariants"
)

// violations are what a watch over all instances found in any version of any of them:
// no status may contradict itself, in any spec.
var violations struct {
	sync.Mutex
	found    []string
	versions int
}

// NoViolations fails when the watch over all instances has found a status that contradicts
// itself since it was called last: after each spec.
func NoViolations() {
	GinkgoHelper()
	violations.Lock()
	defer violations.Unlock()
	found := violations.found
	violations.found = nil
	Expect(found).To(BeEmpty(), "a status that cannot be")
}

// WatchAll checks every version of every instance until the suite ends.
func WatchAll() {
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	last := map[types.UID]*bergv1.ChallengeInstance{}
	ended.Go(func() {
		for ctx.Err() == nil {
			// A watch that does not say where to begin starts with all that exist.
			w, err := apiserver.Client.Watch(ctx, &bergv1.ChallengeInstanceList{})
			if err != nil {
				continue // the suite has other ways to notice that the API server is away
			}
			for e := range w.ResultChan() {
				check(last, e)
			}
		}
	})
	DeferCleanup(func(ctx context.Context) {
		defer ended.Wait()
		defer cancel()
		// The operator has ended, so this one stays as it is written.
		seen := func() int {
			violations.Lock()
			defer violations.Unlock()
			return violations.versions
		}
		before, last := seen(), Instance(ctx, "default", "none")
		Eventually(seen).Should(BeNumerically(">", before), "the watch has ended before the suite")
		Expect(apiserver.Client.Delete(ctx, last)).To(Succeed())
	})
}

func check(last map[types.UID]*bergv1.ChallengeInstance, e watch.Event) {
	after, ok := e.Object.(*bergv1.ChallengeInstance)
	if !ok {
		return
	}
	before := last[after.UID]
	if before == nil {
		before = &bergv1.ChallengeInstance{}
	}
	last[after.UID] = after
	if e.Type == watch.Deleted {
		delete(last, after.UID)
	}
	violations.Lock()
	defer violations.Unlock()
	violations.versions++
	if err := invariants.Violations(before, after); err != nil {
		violations.found = append(violations.found, fmt.Sprintf("%s/%s %s: %s\n  conditions: %s",
			after.Namespace, after.Name, after.Status.Phase, err, expect.Conditions(after)))
	}
}
