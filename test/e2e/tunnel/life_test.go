package tunnel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/limits"
	"github.com/bergctf/berg-operator/test/lib/tunneltest"
)

var limit = limits.Scaled(8 * time.Minute)

// leftOf lists what is left of a pair.
func leftOf(ctx context.Context, p *tunnelv1.ContainerNetworkTunnelProxy) (left []string) {
	for _, list := range []client.ObjectList{&corev1.PodList{}, &corev1.SecretList{}, &corev1.ServiceList{}, &networkingv1.NetworkPolicyList{}} {
		left = append(left, apiserver.Names(ctx, list, client.MatchingLabels{tunnelv1.LabelProxy: string(p.UID)})...)
	}
	return left
}

// pair is a network with a visitor in it, and a pair of proxies with a tunnel web to a server on
// the loopback of the node.
type pair struct {
	*tunnelv1.ContainerNetworkTunnelProxy
	server  int32
	visitor client.ObjectKey
}

func newPair(ctx context.Context) pair {
	GinkgoHelper()
	server := onLoopback(ctx, "server", 0)
	n := tunneltest.Network(ctx)
	who := visitor(ctx, n.Status.NetworkName)
	p := tunneltest.Proxy(ctx, n.Name, tunneltest.To("web", server))
	tunneltest.Reaches(ctx, p, tunnelv1.StateRunning)
	return pair{p, server, who}
}

// at is the address of a tunnel.
func (p pair) at(ctx context.Context, tunnel string) string {
	GinkgoHelper()
	status := tunneltest.Tunnel(ctx, p.ContainerNetworkTunnelProxy, tunnel, tunnelv1.TunnelReady)
	return fmt.Sprintf("%s:%d", p.Name, status.ClientProxyPort)
}

func (p pair) reaches(ctx context.Context, tunnel, server string) {
	GinkgoHelper()
	Eventually(ctx, func() (string, error) { return fetches(ctx, p.visitor, p.at(ctx, tunnel)) }).Should(Equal(server))
}

var _ = Describe("A tunnel", func() {
	It("connects a client in the network to a server that it cannot reach directly, and leaves nothing", func(ctx SpecContext) {
		p := newPair(ctx)
		p.reaches(ctx, "web", "server")
		_, err := fetches(ctx, p.visitor, fmt.Sprintf("%s:%d", world.NodeAddress, p.server))
		Expect(err).To(HaveOccurred(), "the server listens at the loopback alone")

		By("two tunnels to one server, and one to a server that starts late")
		late := p.server + 1
		Expect(world.Get(ctx, client.ObjectKeyFromObject(p), p.ContainerNetworkTunnelProxy)).To(Succeed())
		p.Spec.Tunnels = append(p.Spec.Tunnels, tunneltest.To("more", p.server), tunneltest.To("late", late))
		Expect(world.Update(ctx, p.ContainerNetworkTunnelProxy)).To(Succeed())
		p.reaches(ctx, "more", "server")
		address := p.at(ctx, "late")
		onLoopback(ctx, "late", int(late))
		Eventually(ctx, func() (string, error) { return fetches(ctx, p.visitor, address) }).Should(Equal("late"))
		p.reaches(ctx, "web", "server")

		tunneltest.Delete(ctx, p.ContainerNetworkTunnelProxy)
		Expect(leftOf(ctx, p.ContainerNetworkTunnelProxy)).To(BeEmpty())
	}, SpecTimeout(limit))

	It("outlives the operator, which is killed", func(ctx SpecContext) {
		p := newPair(ctx)
		p.reaches(ctx, "web", "server")
		before := tunneltest.Tunnel(ctx, p.ContainerNetworkTunnelProxy, "web", tunnelv1.TunnelReady)
		killOperator(ctx)
		p.reaches(ctx, "web", "server")
		Expect(tunneltest.Tunnel(ctx, p.ContainerNetworkTunnelProxy, "web", tunnelv1.TunnelReady)).To(Equal(before))
	}, SpecTimeout(limit), Serial)

	DescribeTable("fails when one of its proxies is killed", func(ctx SpecContext, role string) {
		p := newPair(ctx)
		Expect(world.WithWatch.Delete(ctx, podOf(ctx, p.ContainerNetworkTunnelProxy, role), client.GracePeriodSeconds(0))).To(Succeed())
		tunneltest.Reaches(ctx, p.ContainerNetworkTunnelProxy, tunnelv1.StateFailed)
		Eventually(ctx, func() []string { return leftOf(ctx, p.ContainerNetworkTunnelProxy) }).Should(BeEmpty())
	},
		Entry("the client proxy", tunnelv1.RoleClient, SpecTimeout(limit)),
		Entry("the server proxy", tunnelv1.RoleServer, SpecTimeout(limit)),
	)

	It("closes connections to its control and data ports that do not belong to the pair", func(ctx SpecContext) {
		p := newPair(ctx)
		pod := tunneltest.ClientPod(ctx, p.ContainerNetworkTunnelProxy)
		for _, port := range []string{"36672", "36673"} {
			for _, packet := range []string{"GET / HTTP/1.1\r\n\r\n", string(make([]byte, 44)), "\x16\x03\x01\x00\x05hello"} {
				atNode(ctx, func() {
					c, err := net.DialTimeout("tcp", net.JoinHostPort(pod.Status.PodIP, port), 5*time.Second)
					Expect(err).NotTo(HaveOccurred(), "the node may connect")
					defer func() { _ = c.Close() }()
					Expect(c.SetDeadline(time.Now().Add(30 * time.Second))).To(Succeed())
					_, _ = io.WriteString(c, packet)
					_, err = io.Copy(io.Discard, c)
					var late net.Error
					Expect(errors.As(err, &late) && late.Timeout()).To(BeFalse(), "it was not closed")
				})
			}
		}
		p.reaches(ctx, "web", "server")
	}, SpecTimeout(limit))

	It("has control ports that the network cannot reach", Label("network", "attack"), func(ctx SpecContext) {
		p := newPair(ctx)
		pod := tunneltest.ClientPod(ctx, p.ContainerNetworkTunnelProxy)
		p.reaches(ctx, "web", "server")
		for _, port := range []string{"36672", "36673"} {
			Consistently(ctx, func() error {
				_, err := fetches(ctx, p.visitor, net.JoinHostPort(pod.Status.PodIP, port))
				return err
			}).WithTimeout(3 * time.Second).Should(MatchError(Or(ContainSubstring("timeout"), ContainSubstring("deadline"), ContainSubstring("timed out"))))
		}
	}, SpecTimeout(limit))
})
