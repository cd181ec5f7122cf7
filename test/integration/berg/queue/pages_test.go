package queue

import (
	"net/http"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/clock"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/limits"
	"github.com/bergctf/berg-operator/test/lib/transport"
)

// lists records the lists of all instances that an operator asks the API server for, past its cache: that is filled by a watch, or by a list of
// the version 0.
type lists struct {
	mu sync.Mutex
	// limits are those of each list, and more is how many of them continue another one.
	limits []string
	more   int
}

func (l *lists) look(r *http.Request) {
	query := r.URL.Query()
	if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, "/apis/"+bergv1.GroupVersion.String()+"/challengeinstances") ||
		query.Has("watch") || query.Get("resourceVersion") == "0" || query.Has("fieldSelector") {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limits = append(l.limits, query.Get("limit"))
	if query.Get("continue") != "" {
		l.more++
	}
}

// An instance may be as large as half a MiB.
var _ = Describe("A new leader", func() {
	It("asks for all instances in pages of 100, and then starts one that waits", func(ctx SpecContext) {
		ns := bergtest.Publish(ctx, "web", bergtest.OneContainer)
		inprocess.Pause()
		others := bergtest.Several(ctx, ns, "missing", 150)
		waiting := bergtest.Instance(ctx, ns, "web")

		var seen lists
		inprocess.Instead(clock.RealClock{}, nil, transport.Showing(seen.look))
		expect.Reaches(ctx, waiting, bergv1.PhaseRunning)
		expect.Reaches(ctx, others[0], bergv1.PhaseFailed)

		seen.mu.Lock()
		defer seen.mu.Unlock()
		Expect(seen.limits).NotTo(BeEmpty(), "the operator decided by its cache alone")
		Expect(seen.limits).To(HaveEach("100"))
		Expect(seen.more).To(BeNumerically(">=", 1), "151 instances are two pages")
	}, SpecTimeout(limits.Scaled(5*time.Minute)))
})
