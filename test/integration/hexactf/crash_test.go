package hexactf

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/hexactftest"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/limits"
	"github.com/bergctf/berg-operator/test/lib/transport"
)

// concerns tells which writes count until an operator is killed.
func concerns(r *http.Request) bool {
	return strings.Contains(r.URL.Path, "/namespaces/integration-") && !strings.Contains(r.URL.Path, "/events") ||
		strings.Contains(r.URL.Path, "/leases")
}

var _ = Describe("An operator that is killed", func() {
	It("after any of its writes has a successor that deletes every expired challenge and sends every message", func(ctx context.Context) {
		ns := hexactftest.Define(ctx, "web", hexactftest.OneComponent, hexactftest.Lasting(4*time.Second))
		const writes = 11 // of one challenge
		for at := range int64(writes) {
			By(fmt.Sprint("write ", at+1))
			m := transport.NewKill(at+1, false, concerns)
			stop := inprocess.Instead(clock.RealClock{}, nil, m.Wrap)
			c := hexactftest.Challenge(ctx, ns, "web")
			Eventually(m.Dead).Should(BeClosed())
			stop()
			resume := inprocess.Pause()
			resume()
			expect.Gone(ctx, c)
			Eventually(func(g Gomega) {
				received := platform.About(c)
				g.Expect(len(received)).To(BeNumerically(">=", 2), "a challenge on a slow machine may expire before it runs")
				for i, m := range received {
					g.Expect(m.Sequence).To(Equal(int64(i+1)), "a message is missing")
				}
				g.Expect(received[0].NewStatus).To(Equal(hexactfv1.StateCreating))
				g.Expect(received[len(received)-1].NewStatus).To(Equal(hexactfv1.StateDeleted))
			}).Should(Succeed())
			Eventually(func() []string {
				return apiserver.Names(ctx, &appsv1.DeploymentList{}, client.InNamespace(ns))
			}).Should(BeEmpty())
		}
	}, SpecTimeout(limits.Scaled(8*time.Minute)))

	DescribeTable("has a successor that brings the challenge to Running with its endpoint, and sends every message,", func(ctx SpecContext, before bool) {
		ns := hexactftest.Define(ctx, "web", hexactftest.OneComponent)
		const writes = 11 // of one challenge that a client deletes
		for at := range int64(writes) {
			By(fmt.Sprint("write ", at+1))
			m := transport.NewKill(at+1, before, concerns)
			stop := inprocess.Instead(clock.RealClock{}, nil, m.Wrap)
			c := hexactftest.Challenge(ctx, ns, "web")
			// It is deleted when it runs and the messages are acknowledged, unless the operator is cut off before.
			Eventually(func(g Gomega) {
				now := &hexactfv1.Challenge{}
				g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(c), now)).To(Succeed())
				if !m.Done() {
					g.Expect(now.Status.CurrentStatus.State).To(Equal(hexactfv1.StateRunning))
					g.Expect(now.Status.Messages.Outbox).To(BeEmpty())
				}
			}).Should(Succeed())
			deleted := false
			if !m.Done() {
				hexactftest.Delete(ctx, c)
				deleted = true
			}
			Eventually(m.Dead).Should(BeClosed())
			stop()
			resume := inprocess.Pause()
			resume()
			if !deleted {
				hexactftest.Reaches(ctx, c, hexactfv1.StateRunning)
				service := get(ctx, ns, prefix(c, "web")+"-svc", &corev1.Service{})
				Expect(c.Status.Endpoint).NotTo(BeZero())
				Expect(c.Status.Endpoint).To(Equal(service.Spec.Ports[0].NodePort))
				hexactftest.Delete(ctx, c)
			}
			expect.Gone(ctx, c)
			platform.Receives(c, hexactfv1.StateCreating, hexactfv1.StateRunning, hexactfv1.StateDeleted)
			message := platform.About(c)[1]
			Expect(message.Endpoint).To(MatchRegexp(`^[1-9]\d+$`), "the message contains the endpoint")
			if !deleted {
				Expect(message.Endpoint).To(Equal(strconv.Itoa(int(c.Status.Endpoint))))
			}
		}
	},
		Entry("when its last write was done", false, SpecTimeout(limits.Scaled(10*time.Minute))),
		Entry("when its last write was not done", true, SpecTimeout(limits.Scaled(10*time.Minute))),
	)
})
