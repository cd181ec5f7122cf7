package hexactf

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/hexactftest"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/transport"
)

// mortal is an operator's connection that is cut for good at one of its writes: that one
// reaches the API server, and its answer nobody. So it is when a process is killed.
type mortal struct {
	at     int64
	writes atomic.Int64
	dead   chan struct{}
}

func (m *mortal) wrap(next http.RoundTripper) http.RoundTripper {
	killed := errors.New("killed")
	return transport.Func(func(r *http.Request) (*http.Response, error) {
		select {
		case <-m.dead:
			return nil, killed
		default:
		}
		about := strings.Contains(r.URL.Path, "/namespaces/integration-") && !strings.Contains(r.URL.Path, "/events")
		if r.Method == http.MethodGet || !about || m.writes.Add(1) < m.at {
			return next.RoundTrip(r)
		}
		response, err := next.RoundTrip(r)
		if err == nil {
			_ = response.Body.Close()
		}
		select {
		case <-m.dead:
		default:
			close(m.dead)
		}
		return nil, killed
	})
}

var _ = Describe("An operator that is killed", func() {
	It("after any of its writes has a successor that brings every life to its end, and every message is told", func(ctx context.Context) {
		ns := hexactftest.Namespace(ctx)
		hexactftest.Definition(ctx, ns, "web", hexactftest.OneComponent, hexactftest.Lasting(4*time.Second))
		const writes = 9 // of one life
		for at := range int64(writes) {
			By(fmt.Sprint("write ", at+1))
			m := &mortal{at: at + 1, dead: make(chan struct{})}
			stop := inprocess.Instead(clock.RealClock{}, nil, m.wrap)
			c := hexactftest.Challenge(ctx, ns, "web")
			Eventually(m.dead).Should(BeClosed())
			stop()
			resume := inprocess.Pause()
			resume()
			expect.Gone(ctx, c)
			Eventually(func(g Gomega) {
				told := platform.About(c)
				g.Expect(len(told)).To(BeNumerically(">=", 2), "one that was late may have been over before it ran")
				for i, m := range told {
					g.Expect(m.Sequence).To(Equal(int64(i+1)), "a message is missing")
				}
				g.Expect(told[0].NewStatus).To(Equal(hexactfv1.StateCreating))
				g.Expect(told[len(told)-1].NewStatus).To(Equal(hexactfv1.StateDeleted))
			}).Should(Succeed())
			Eventually(func() []string {
				return apiserver.Names(ctx, &appsv1.DeploymentList{}, client.InNamespace(ns))
			}).Should(BeEmpty())
		}
	}, SpecTimeout(8*time.Minute))
})
