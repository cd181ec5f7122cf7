package tunnel

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/tunneltest"
)

// update changes the spec of a pair.
func update(ctx context.Context, p *tunnelv1.ContainerNetworkTunnelProxy, change func(*tunnelv1.ContainerNetworkTunnelProxySpec)) {
	GinkgoHelper()
	Eventually(func() error {
		if err := k8s.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		change(&p.Spec)
		return k8s.Update(ctx, p)
	}).Should(Succeed())
}

func through(port int32) {
	GinkgoHelper()
	Eventually(func() (string, error) { return tunneltest.Ask(port, "hello") }).Should(Equal("hello"))
}

// leftOf lists what is left of a pair in the cluster, and of its process.
func leftOf(ctx context.Context, p *tunnelv1.ContainerNetworkTunnelProxy) (left []string) {
	of := client.MatchingLabels{tunnelv1.LabelProxy: string(p.UID)}
	for _, list := range []client.ObjectList{&corev1.PodList{}, &corev1.SecretList{}, &corev1.ServiceList{}, &networkingv1.NetworkPolicyList{}} {
		left = append(left, apiserver.Names(ctx, list, of)...)
	}
	processes, err := os.ReadDir("/proc")
	Expect(err).NotTo(HaveOccurred())
	for _, entry := range processes {
		line, err := os.ReadFile("/proc/" + entry.Name() + "/cmdline")
		if err == nil && strings.Contains(string(line), string(p.UID)) {
			left = append(left, "process "+entry.Name())
		}
	}
	return left
}

func goneWithAll(ctx context.Context, p *tunnelv1.ContainerNetworkTunnelProxy) {
	GinkgoHelper()
	tunneltest.Delete(ctx, p)
	Eventually(func() []string { return leftOf(ctx, p) }).Should(BeEmpty())
}

// running returns a pair with a tunnel web to an echo server.
func running(ctx context.Context) (p *tunnelv1.ContainerNetworkTunnelProxy, echo *tunneltest.Echo) {
	GinkgoHelper()
	n := tunneltest.Network(ctx)
	echo = tunneltest.NewEcho(0)
	p = tunneltest.Proxy(ctx, n.Name, tunneltest.To("web", echo.Port))
	tunneltest.Reaches(ctx, p, tunnelv1.StateRunning)
	tunneltest.Tunnel(ctx, p, "web", tunnelv1.TunnelReady)
	expect.Shows(ctx, p, tunnelv1.ConditionReady, "True", tunnelv1.ReasonTunnelsReady)
	return p, echo
}

var _ = Describe("A pair of proxies", func() {
	It("connects clients to a server, and leaves nothing when it is deleted", Label("versions"), func(ctx context.Context) {
		p, _ := running(ctx)
		web := tunneltest.Tunnel(ctx, p, "web", tunnelv1.TunnelReady)
		through(web.ClientProxyPort)
		Expect(web.TunnelID).NotTo(BeZero())
		Expect(web.ClientProxyAddresses).NotTo(BeEmpty())

		By("its status")
		s := p.Status
		Expect(s.TunnelConfigurationVersion).To(Equal(int32(1)))
		Expect(s.ClientProxyContainerID).NotTo(BeEmpty())
		Expect(s.ClientProxyContainerImage).To(Equal("example.com/berg-tunnel:1"))
		Expect(s.ClientProxyControlPort).To(BeNumerically(">=", 28000))
		Expect(s.ClientProxyDataPort).To(Equal(s.ClientProxyControlPort + 1))
		Expect(*s.ServerProxyProcessID).To(BeNumerically(">", 1))
		Expect(s.ServerProxyStartupTimestamp.Time).To(BeTemporally("~", time.Now(), time.Minute))
		Expect(s.ServerProxyControlPort).NotTo(BeZero())
		Expect(s.ServerProxyStdOutFile).To(BeARegularFile())
		Expect(s.ServerProxyStdErrFile).To(BeARegularFile())
		expect.Event(ctx, p, corev1.EventTypeNormal, tunnelv1.ReasonProxiesReady)
		expect.Event(ctx, p, corev1.EventTypeNormal, tunnelv1.ReasonTunnelReady)
		expect.Readable(p.Status.Conditions)

		By("its objects")
		pod := tunneltest.ClientPod(ctx, p)
		service := apiserver.Get[corev1.Service](ctx, client.ObjectKey{Namespace: pod.Namespace, Name: p.Name})
		Expect(service.Spec.ClusterIP).To(Equal(corev1.ClusterIPNone))
		Expect(service.Spec.Ports).To(HaveLen(1))
		Expect(service.Spec.Ports[0].Port).To(Equal(web.ClientProxyPort))

		By("no secret in its logs, its status, or on a command line")
		for _, file := range []string{s.ServerProxyStdOutFile, s.ServerProxyStdErrFile, fmt.Sprintf("/proc/%d/cmdline", *s.ServerProxyProcessID)} {
			text, err := os.ReadFile(file)
			Expect(err).NotTo(HaveOccurred())
			Expect(string(text)).NotTo(ContainSubstring("PRIVATE KEY"))
		}

		goneWithAll(ctx, p)
		Expect(s.ServerProxyStdOutFile).NotTo(BeAnExistingFile())
		_, err := tunneltest.Ask(web.ClientProxyPort, "hello")
		Expect(err).To(HaveOccurred(), "the port is free")
	})

	It("prepares, changes and removes tunnels while others keep working", func(ctx context.Context) {
		p, echo := running(ctx)
		web := tunneltest.Tunnel(ctx, p, "web", tunnelv1.TunnelReady)
		live, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(web.ClientProxyPort))))
		Expect(err).NotTo(HaveOccurred())
		defer func() { _ = live.Close() }()
		Expect(tunneltest.Exchange(live, "one")).To(Equal("one"))

		By("a second tunnel to the same server, which differs only in its name")
		update(ctx, p, func(s *tunnelv1.ContainerNetworkTunnelProxySpec) {
			s.Tunnels = append(s.Tunnels, tunneltest.To("more", echo.Port))
		})
		more := tunneltest.Tunnel(ctx, p, "more", tunnelv1.TunnelReady)
		through(more.ClientProxyPort)
		Expect(p.Status.TunnelConfigurationVersion).To(Equal(int32(2)))
		Expect(tunneltest.Tunnel(ctx, p, "web", tunnelv1.TunnelReady)).To(Equal(web), "it was not touched")

		By("another server for it")
		other := tunneltest.NewEcho(0)
		update(ctx, p, func(s *tunnelv1.ContainerNetworkTunnelProxySpec) { s.Tunnels[1].ServerPort = other.Port })
		Eventually(func(g Gomega) {
			again := tunneltest.Tunnel(ctx, p, "more", tunnelv1.TunnelReady)
			g.Expect(again.TunnelID).NotTo(Equal(more.TunnelID))
			more = again
		}).Should(Succeed())
		through(more.ClientProxyPort)
		Expect(p.Status.TunnelConfigurationVersion).To(Equal(int32(3)))

		By("the first one is removed while a stream runs")
		update(ctx, p, func(s *tunnelv1.ContainerNetworkTunnelProxySpec) { s.Tunnels = s.Tunnels[1:] })
		expect.Becomes(ctx, p, func(g Gomega) {
			g.Expect(p.Status.TunnelStatuses).To(HaveLen(1))
		})
		_, err = tunneltest.Ask(web.ClientProxyPort, "hello")
		Expect(err).To(HaveOccurred(), "its port is closed")
		Expect(tunneltest.Exchange(live, "two")).To(Equal("two"), "the stream continues")
		Expect(p.Status.TunnelConfigurationVersion).To(Equal(int32(4)))

		By("two tunnels exchange their ports")
		first, second := more.ClientProxyPort, web.ClientProxyPort
		update(ctx, p, func(s *tunnelv1.ContainerNetworkTunnelProxySpec) {
			s.Tunnels = []tunnelv1.TunnelConfiguration{
				{Name: "a", ServerPort: echo.Port, ClientProxyPort: first}, {Name: "b", ServerPort: echo.Port, ClientProxyPort: second},
			}
		})
		tunneltest.Tunnel(ctx, p, "a", tunnelv1.TunnelReady)
		tunneltest.Tunnel(ctx, p, "b", tunnelv1.TunnelReady)
		update(ctx, p, func(s *tunnelv1.ContainerNetworkTunnelProxySpec) {
			s.Tunnels[0].ClientProxyPort, s.Tunnels[1].ClientProxyPort = second, first
		})
		Eventually(func(g Gomega) {
			g.Expect(tunneltest.Tunnel(ctx, p, "a", tunnelv1.TunnelReady).ClientProxyPort).To(Equal(second))
			g.Expect(tunneltest.Tunnel(ctx, p, "b", tunnelv1.TunnelReady).ClientProxyPort).To(Equal(first))
		}).Should(Succeed())
		through(first)
		through(second)
	})

	It("is ready before its server is, and connects to it when it starts", func(ctx context.Context) {
		p, echo := running(ctx)
		web := tunneltest.Tunnel(ctx, p, "web", tunnelv1.TunnelReady)
		echo.Close()
		early, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(web.ClientProxyPort))))
		Expect(err).NotTo(HaveOccurred())
		defer func() { _ = early.Close() }()
		tunneltest.NewEcho(echo.Port)
		Expect(tunneltest.Exchange(early, "late")).To(Equal("late"))
		Expect(tunneltest.Tunnel(ctx, p, "web", tunnelv1.TunnelReady)).To(Equal(web))
	})

	DescribeTable("fails when a proxy ends, and is not restarted", func(ctx context.Context, end func(context.Context, *tunnelv1.ContainerNetworkTunnelProxy), says string) {
		p, _ := running(ctx)
		logs := p.Status.ServerProxyStdErrFile
		end(ctx, p)
		tunneltest.Reaches(ctx, p, tunnelv1.StateFailed)
		Expect(p.Status.Message).To(MatchRegexp(says))
		Expect(p.Status.TunnelStatuses).To(HaveLen(1))
		Expect(p.Status.TunnelStatuses[0].State).To(Equal(tunnelv1.TunnelFailed))
		Expect(p.Status.TunnelStatuses[0].ErrorMessage).NotTo(BeEmpty())
		Expect(p.Status.ClientProxyContainerID).To(BeEmpty())
		Expect(p.Status.ServerProxyProcessID).To(BeNil())
		expect.Shows(ctx, p, tunnelv1.ConditionProxiesReady, "False", tunnelv1.ReasonProxyEnded)
		expect.Shows(ctx, p, tunnelv1.ConditionReady, "False", tunnelv1.ReasonFailed)
		expect.Shows(ctx, p, tunnelv1.ConditionStalled, "True", tunnelv1.ReasonFailed)
		expect.Event(ctx, p, corev1.EventTypeWarning, tunnelv1.ReasonFailed)
		Eventually(func() []string { return leftOf(ctx, p) }).Should(BeEmpty())
		Expect(logs).To(BeARegularFile(), "the output of the server proxy stays")
		goneWithAll(ctx, p)
		Expect(logs).NotTo(BeAnExistingFile())
	},
		Entry("the server proxy is killed", func(_ context.Context, p *tunnelv1.ContainerNetworkTunnelProxy) {
			Expect(syscall.Kill(int(*p.Status.ServerProxyProcessID), syscall.SIGKILL)).To(Succeed())
		}, "server proxy"),
		Entry("the client proxy is killed", func(ctx context.Context, p *tunnelv1.ContainerNetworkTunnelProxy) { kubelet.Kill(ctx, p) }, "client proxy"),
		Entry("the pod is deleted", func(ctx context.Context, p *tunnelv1.ContainerNetworkTunnelProxy) {
			Expect(k8s.Delete(ctx, tunneltest.ClientPod(ctx, p))).To(Succeed())
		}, "client proxy|the other proxy has ended"), // which of the two ends is seen first is open
	)

	It("writes nothing when there is nothing to do", func(ctx context.Context) {
		p, _ := running(ctx)
		version := func() string {
			Expect(k8s.Get(ctx, client.ObjectKeyFromObject(p), p)).To(Succeed())
			return p.ResourceVersion
		}
		before := version()
		inprocess.Pause()()
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"example.com/poke":"1"}}}`))
		Expect(k8s.Patch(ctx, p, patch)).To(Succeed())
		poked := version()
		Expect(poked).NotTo(Equal(before))
		Consistently(version).WithTimeout(5 * time.Second).Should(Equal(poked))
	})
})
