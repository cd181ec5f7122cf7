package hexactf

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/hexactftest"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/limits"
	"github.com/bergctf/berg-operator/test/lib/transport"
)

var _ = Describe("While the broker does not answer", func() {
	It("challenges run and expire, and their messages wait and arrive in order", func(ctx context.Context) {
		ns := hexactftest.Define(ctx, "web", hexactftest.OneComponent)
		platform.Away()
		DeferCleanup(platform.Back)
		c := running(ctx, ns, "web")
		expect.Shows(ctx, c, hexactfv1.ConditionNotifying, metav1.ConditionFalse, hexactfv1.ReasonNotifyFailed)
		expect.Event(ctx, c, corev1.EventTypeWarning, hexactfv1.ReasonNotifyFailed)
		Expect(c.Status.CurrentStatus.State).To(Equal(hexactfv1.StateRunning))
		Expect(c.DeletionTimestamp).To(BeNil())
		Expect(c.Status.Messages.Outbox).To(HaveLen(2))
		Expect(inprocess.Metric("hexactf_messages_unsent")).To(BeNumerically(">=", 2))

		By("a restart of the operator")
		inprocess.Restart(nil, nil)
		hexactftest.Reaches(ctx, c, hexactfv1.StateRunning)

		By("a deletion that waits until the broker answers again")
		hexactftest.Delete(ctx, c)
		hexactftest.Reaches(ctx, c, hexactfv1.StateTerminating)
		Expect(platform.States(c)).To(BeEmpty())
		platform.Back()
		platform.Receives(c, hexactfv1.StateCreating, hexactfv1.StateRunning, hexactfv1.StateDeleted)
		expect.Gone(ctx, c)
		Expect(inprocess.Metric("hexactf_messages_unsent")).To(BeZero())
	})

	It("a deletion waits no longer than KAFKA_DELETE_TIMEOUT, and reports messages that may be lost", func(ctx context.Context) {
		inprocess.Restart(map[string]string{"KAFKA_DELETE_TIMEOUT": "4s"}, nil)
		ns := hexactftest.Define(ctx, "short", hexactftest.OneComponent, hexactftest.Lasting(6*time.Second))
		platform.Away()
		DeferCleanup(platform.Back)
		lost := inprocess.Metric("hexactf_messages_lost_total")
		c := running(ctx, ns, "short")
		over := c.Status.ExpiresAt.Time
		hexactftest.Reaches(ctx, c, hexactfv1.StateTerminating)
		expect.Gone(ctx, c)
		Expect(time.Now()).To(And(BeTemporally(">=", over.Add(3*time.Second)), BeTemporally("<", over.Add(limits.Scaled(time.Minute)))))
		Expect(inprocess.Metric("hexactf_messages_lost_total") - lost).To(Equal(3.0))
		expect.Event(ctx, c, corev1.EventTypeWarning, hexactfv1.ReasonMessagesLost)
	})
})

var _ = Describe("Without a broker", func() {
	It("no message is recorded, and a deletion does not wait", func(ctx context.Context) {
		inprocess.Restart(map[string]string{"KAFKA_BROKERS": "", "KAFKA_DELETE_TIMEOUT": "1h"}, nil)
		ns := hexactftest.Define(ctx, "web", hexactftest.OneComponent)
		c := running(ctx, ns, "web")
		expect.Shows(ctx, c, hexactfv1.ConditionNotifying, metav1.ConditionTrue, hexactfv1.ReasonNotifyOff)
		Expect(c.Status.Messages).To(BeNil())
		hexactftest.Delete(ctx, c)
		expect.Gone(ctx, c) // which waits less than KAFKA_DELETE_TIMEOUT
	})
})

// writes are the writes of an operator, without leases and events.
type writes struct {
	mu  sync.Mutex
	all []string
}

func (w *writes) list() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.all)
}

func (w *writes) wrap(next http.RoundTripper) http.RoundTripper {
	return transport.Showing(func(r *http.Request) {
		switch {
		case r.Method == http.MethodGet, transport.Asks(r), strings.Contains(r.URL.Path, "/leases"), strings.Contains(r.URL.Path, "/events"):
		default:
			w.mu.Lock()
			defer w.mu.Unlock()
			GinkgoWriter.Println("wrote", r.Method, r.URL.Path, transport.Body(r))
			w.all = append(w.all, r.Method+" "+r.URL.Path)
		}
	})(next)
}

var _ = Describe("An unchanged challenge", func() {
	It("costs no write, also after a restart that reconciles it again", func(ctx context.Context) {
		ns := hexactftest.Define(ctx, "web", hexactftest.TwoComponents)
		c := running(ctx, ns, "web")
		platform.Receives(c, hexactfv1.StateCreating, hexactfv1.StateRunning)
		expect.Becomes(ctx, c, func(g Gomega) {
			g.Expect(c.Status.Messages.Outbox).To(BeEmpty())
		})
		w := &writes{}
		inprocess.Restart(nil, w.wrap)
		Consistently(w.list).WithTimeout(4 * time.Second).Should(BeEmpty())
	})

	It("costs few writes from its creation to its deletion", func(ctx context.Context) {
		ns := hexactftest.Define(ctx, "web", hexactftest.OneComponent)
		w := &writes{}
		inprocess.Restart(nil, w.wrap)
		c := running(ctx, ns, "web")
		expect.Becomes(ctx, c, func(g Gomega) {
			g.Expect(c.Status.Messages).NotTo(BeNil())
			g.Expect(c.Status.Messages.Outbox).To(BeEmpty())
		})
		hexactftest.Delete(ctx, c)
		expect.Gone(ctx, c)
		// Finalizer, Creating, three objects, the endpoint, Running, acknowledged; Terminating, zero replicas, the policy, finalizer. A
		// pod that is ready very soon makes the endpoint and Running one write. A start that takes seconds is reported in
		// between.
		if c.Status.RunningAt.Sub(c.Status.StartedAt.Time) < 2*time.Second {
			Expect(len(w.list())).To(BeElementOf(11, 12), "%v", w.list())
		}
		Expect(len(w.list())).To(BeNumerically("<=", 15))
	})
})
