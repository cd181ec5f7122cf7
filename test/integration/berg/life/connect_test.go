package life

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
)

var _ = Describe("An instance whose pods are ready", func() {
	const onePort = `containers: [{hostname: web, image: "berg.test/behaviour/not-ready:1", ports: [{name: web, port: 8080, type: publicPort%s}]}]`
	// becomesReady starts an instance of one public port, whose pod is ready at a node of this address.
	becomesReady := func(ctx context.Context, name, field string, node netip.Addr) *bergv1.ChallengeInstance {
		GinkgoHelper()
		ns := bergtest.Publish(ctx, name, fmt.Sprintf(onePort, field))
		i := bergtest.Instance(ctx, ns, name)
		expect.Reaches(ctx, i, bergv1.PhaseStarting)
		untilPods(ctx, i, corev1.PodRunning)
		setPods(ctx, i, func(p *corev1.Pod) {
			p.Status.HostIP, p.Status.HostIPs = node.String(), []corev1.HostIP{{IP: node.String()}}
			becomeReady(p)
		})
		return i
	}
	phase := func(ctx context.Context, i *bergv1.ChallengeInstance) func() (bergv1.Phase, error) {
		return func() (bergv1.Phase, error) {
			err := k8s.Get(ctx, client.ObjectKeyFromObject(i), i)
			return i.Status.Phase, err
		}
	}

	It("is Running when its node port accepts a connection, and not before", func(ctx context.Context) {
		inprocess.Restart(map[string]string{"CHALLENGE_CONNECT_TIMEOUT": "30s"}, nil)
		node := ownAddress()
		i := becomesReady(ctx, "connected", "", node)
		Consistently(phase(ctx, i)).WithTimeout(3 * time.Second).Should(Equal(bergv1.PhaseStarting))
		listener, err := net.Listen("tcp", netip.AddrPortFrom(node, uint16(i.Status.Services[0].Port)).String())
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(listener.Close)
		expect.Reaches(ctx, i, bergv1.PhaseRunning)
		conn, err := listener.Accept()
		Expect(err).NotTo(HaveOccurred())
		Expect(conn.Close()).To(Succeed())

		By("an author who turns it off")
		expect.Reaches(ctx, becomesReady(ctx, "once", ", connectAtStart: false", node), bergv1.PhaseRunning)
	})

	It("is Running as soon as its program accepts a connection, before the node says so", func(ctx context.Context) {
		inprocess.Restart(map[string]string{"CHALLENGE_CONNECT_TIMEOUT": "30s"}, nil)
		node := ownAddress()
		listener, err := net.Listen("tcp", netip.AddrPortFrom(node, 0).String())
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(listener.Close)
		ns := bergtest.Namespace(ctx)
		bergtest.Challenge(ctx, ns, "early", openPort(listener))
		i := bergtest.Instance(ctx, ns, "early")
		expect.Reaches(ctx, i, bergv1.PhaseStarting)
		untilPods(ctx, i, corev1.PodRunning)
		Consistently(phase(ctx, i)).WithTimeout(3*time.Second).Should(Equal(bergv1.PhaseStarting), "it is not ready for another reason than its startup probe")
		setPods(ctx, i, func(p *corev1.Pod) {
			p.Status.PodIP, p.Status.PodIPs = node.String(), []corev1.PodIP{{IP: node.String()}}
			for n := range p.Status.ContainerStatuses {
				p.Status.ContainerStatuses[n].Started = ptr.To(false) // its startup probe has not succeeded
			}
		})
		expect.Reaches(ctx, i, bergv1.PhaseRunning)
		Expect(meta.IsStatusConditionTrue(i.Status.Conditions, bergv1.ConditionHealthy)).To(BeTrue())
		Expect(i.Status.Start.PodsReadyAt).NotTo(BeNil())
		conn, err := listener.Accept()
		Expect(err).NotTo(HaveOccurred())
		Expect(conn.Close()).To(Succeed())
		var service corev1.Service
		Expect(k8s.Get(ctx, client.ObjectKey{Namespace: i.Status.Namespace, Name: "web"}, &service)).To(Succeed())
		Expect(service.Spec.PublishNotReadyAddresses).To(BeTrue(), "players would wait for the node")

		By("the node, which says so later")
		before := i.ResourceVersion
		setPods(ctx, i, becomeReady)
		Consistently(func(g Gomega) {
			g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(i), i)).To(Succeed())
			g.Expect(i.ResourceVersion).To(Equal(before))
		}).WithTimeout(3 * time.Second).Should(Succeed())
	})

	It("is Running after the timeout where nothing answers", func(ctx context.Context) {
		inprocess.Restart(map[string]string{"CHALLENGE_CONNECT_TIMEOUT": "1s"}, nil)
		expect.Reaches(ctx, becomesReady(ctx, "silent", "", ownAddress()), bergv1.PhaseRunning)
	})
})

// openPort is the spec of a Challenge whose pod is not ready, and whose program accepts connections at the port of a listener.
func openPort(l net.Listener) string {
	return fmt.Sprintf(`containers: [{hostname: web, image: "berg.test/behaviour/not-ready:1", ports: [{name: web, port: %d, type: publicHttpRoute}]}]`, l.Addr().(*net.TCPAddr).Port)
}

// becomeReady is what a node says of a pod whose probes succeed.
func becomeReady(p *corev1.Pod) {
	for n := range p.Status.ContainerStatuses {
		p.Status.ContainerStatuses[n].Ready = true
	}
	at := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady })
	p.Status.Conditions[at].Status = corev1.ConditionTrue
}

// ownAddress is an address of this machine that is not its loopback.
func ownAddress() netip.Addr {
	GinkgoHelper()
	all, err := net.InterfaceAddrs()
	Expect(err).NotTo(HaveOccurred())
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() && p.Addr().IsGlobalUnicast() {
			return p.Addr()
		}
	}
	Skip("this machine has no address but its loopback")
	return netip.Addr{}
}
