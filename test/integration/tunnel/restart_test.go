package tunnel

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/transport"
	"github.com/bergctf/berg-operator/test/lib/tunneltest"
)

// concerns tells which writes count until an operator is killed.
func concerns(r *http.Request) bool {
	return !strings.Contains(r.URL.Path, "/events")
}

var _ = Describe("An operator that restarts", func() {
	It("fails no healthy pair, drops no stream, and writes nothing", func(ctx context.Context) {
		p, _ := running(ctx)
		web := tunneltest.Tunnel(ctx, p, "web", tunnelv1.TunnelReady)
		live, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(web.ClientProxyPort))))
		Expect(err).NotTo(HaveOccurred())
		defer func() { _ = live.Close() }()
		Expect(tunneltest.Exchange(live, "one")).To(Equal("one"))
		pid := *p.Status.ServerProxyProcessID
		resume := inprocess.Pause()
		Expect(tunneltest.Exchange(live, "two")).To(Equal("two"))
		resume()
		Expect(tunneltest.Exchange(live, "three")).To(Equal("three"))
		Expect(tunneltest.Tunnel(ctx, p, "web", tunnelv1.TunnelReady)).To(Equal(web))
		Expect(p.Status.State).To(Equal(tunnelv1.StateRunning))
		Expect(*p.Status.ServerProxyProcessID).To(Equal(pid))

		By("and applies what changed while it did not run")
		again := inprocess.Pause()
		other := tunneltest.NewEcho(0)
		update(ctx, p, func(s *tunnelv1.ContainerNetworkTunnelProxySpec) { s.Tunnels[0].ServerPort = other.Port })
		again()
		Eventually(func(g Gomega) {
			g.Expect(tunneltest.Tunnel(ctx, p, "web", tunnelv1.TunnelReady).TunnelID).NotTo(Equal(web.TunnelID))
		}).Should(Succeed())
		Expect(tunneltest.Exchange(live, "four")).To(Equal("four"), "the stream of the former tunnel continues")
	})

	It("with other settings does not change a pair that runs", func(ctx context.Context) {
		p, _ := running(ctx)
		web := tunneltest.Tunnel(ctx, p, "web", tunnelv1.TunnelReady)
		pod := tunneltest.ClientPod(ctx, p)
		policy, before := &networkingv1.NetworkPolicy{}, &networkingv1.NetworkPolicy{}
		at := client.ObjectKey{Namespace: pod.Namespace, Name: pod.Name}
		Expect(k8s.Get(ctx, at, before)).To(Succeed())
		inprocess.Restart(map[string]string{
			"TUNNEL_BACKEND": "HostPod", "TUNNEL_PUBLISH": "PodIP", "TUNNEL_CONTROL_PORT": "40001", "TUNNEL_DATA_PORT": "40002",
			"TUNNEL_REGISTRY_SECRET": "missing", "TUNNEL_PULL_SECRET": "missing",
		}, nil)
		other := tunneltest.NewEcho(0)
		update(ctx, p, func(s *tunnelv1.ContainerNetworkTunnelProxySpec) {
			s.Tunnels = append(s.Tunnels, tunneltest.To("more", other.Port))
		})
		through(tunneltest.Tunnel(ctx, p, "more", tunnelv1.TunnelReady).ClientProxyPort)
		Expect(tunneltest.Tunnel(ctx, p, "web", tunnelv1.TunnelReady)).To(Equal(web))
		Expect(p.Status.State).To(Equal(tunnelv1.StateRunning))
		Expect(p.Status.ServerProxyBackend).To(Equal("LocalProcess"))
		Expect(p.Status.ClientProxyPublish).To(Equal("HostPort"))
		Expect(k8s.Get(ctx, at, policy)).To(Succeed())
		Expect(policy.Spec).To(Equal(before.Spec))
		goneWithAll(ctx, p)
	})

	It("finds a pair Failed whose server proxy ended while it did not run", func(ctx context.Context) {
		p, _ := running(ctx)
		resume := inprocess.Pause()
		kubelet.Kill(ctx, p)
		resume()
		tunneltest.Reaches(ctx, p, tunnelv1.StateFailed)
		Eventually(func() []string { return leftOf(ctx, p) }).Should(BeEmpty())
	})

	It("after any of its writes brings a pair to Running, and deletes it completely", func(ctx context.Context) {
		const writes = 16 // of one life
		n := tunneltest.Network(ctx)
		echo := tunneltest.NewEcho(0)
		for at := range int64(writes) {
			By("write " + strconv.FormatInt(at+1, 10))
			m := transport.NewKill(at+1, false, concerns)
			stop := inprocess.Instead(clock.RealClock{}, nil, m.Wrap)
			p := tunneltest.NewProxy(n.Name, tunneltest.To("web", echo.Port))
			Expect(k8s.Create(ctx, p)).To(Succeed())
			if at >= writes/2 {
				expect.Becomes(ctx, p, func(g Gomega) {
					if p.Status.State != tunnelv1.StateRunning {
						g.Expect(m.Dead).To(BeClosed())
					}
				})
				Expect(k8s.Delete(ctx, p)).To(Succeed())
			}
			Eventually(func() bool {
				select {
				case <-m.Dead:
					return true
				default:
					return client.IgnoreNotFound(k8s.Get(ctx, client.ObjectKeyFromObject(p), p)) == nil && p.UID != "" && p.Status.State == tunnelv1.StateRunning
				}
			}).Should(BeTrue())
			stop()
			inprocess.Pause()()
			if p.DeletionTimestamp == nil && k8s.Get(ctx, client.ObjectKeyFromObject(p), p) == nil && p.DeletionTimestamp == nil {
				tunneltest.Tunnel(ctx, p, "web", tunnelv1.TunnelReady)
			}
			goneWithAll(ctx, p)
			expect.Gone(ctx, p)
		}
	})
})

var _ = Describe("A deletion", func() {
	It("in Starting leaves nothing", func(ctx context.Context) {
		release := kubelet.Hold()
		n := tunneltest.Network(ctx)
		p := tunneltest.Proxy(ctx, n.Name, tunneltest.To("web", 80))
		tunneltest.Reaches(ctx, p, tunnelv1.StateStarting)
		release()
		goneWithAll(ctx, p)
	})
	It("in Running, during which the operator restarts, leaves nothing", func(ctx context.Context) {
		p, _ := running(ctx)
		resume := inprocess.Pause()
		Expect(k8s.Delete(ctx, p)).To(Succeed())
		resume()
		expect.Gone(ctx, p)
		Eventually(func() []string { return leftOf(ctx, p) }).Should(BeEmpty())
	})
})
