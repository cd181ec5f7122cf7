package tunnel

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/deployed"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/tunneltest"
)

// killOperator deletes every pod of the operator without the grace that pods are given, and waits
// until others work.
func killOperator(ctx context.Context) {
	GinkgoHelper()
	pods, err := world.OperatorPods(ctx)
	Expect(err).NotTo(HaveOccurred())
	Expect(pods).NotTo(BeEmpty())
	for i := range pods {
		Expect(world.WithWatch.Delete(ctx, &pods[i], client.GracePeriodSeconds(0))).To(Succeed())
	}
	Eventually(ctx, func() error { return deployed.ExpectLease(ctx) }).Should(Succeed())
}

// podOf returns the pod of one of the proxies of a pair.
func podOf(ctx context.Context, p *tunnelv1.ContainerNetworkTunnelProxy, role string) *corev1.Pod {
	GinkgoHelper()
	var pods corev1.PodList
	Expect(world.List(ctx, &pods, client.MatchingLabels{tunnelv1.LabelProxy: string(p.UID), tunnelv1.LabelRole: role})).To(Succeed())
	Expect(pods.Items).To(HaveLen(1))
	return &pods.Items[0]
}

// stay is a finalizer that holds a pod back from deletion.
const stay = "e2e.berg.norelect.ch/stay"

// keep holds a pod back from deletion until letGo.
func keep(ctx context.Context, pod *corev1.Pod) (letGo func(context.Context)) {
	GinkgoHelper()
	change := func(ctx context.Context, how func(client.Object, string) bool) error {
		live := &corev1.Pod{}
		if err := world.Get(ctx, client.ObjectKeyFromObject(pod), live); err != nil {
			return client.IgnoreNotFound(err)
		}
		before := live.DeepCopy()
		if !how(live, stay) {
			return nil
		}
		return client.IgnoreNotFound(world.Patch(ctx, live, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
	}
	Eventually(ctx, func() error { return change(ctx, controllerutil.AddFinalizer) }).Should(Succeed())
	letGo = func(ctx context.Context) {
		Eventually(ctx, func() error { return change(ctx, controllerutil.RemoveFinalizer) }).Should(Succeed())
	}
	DeferCleanup(letGo)
	return letGo
}

// denyPod denies the operator to create the pod of one of the proxies of a pair.
func denyPod(ctx context.Context, p *tunnelv1.ContainerNetworkTunnelProxy, part string) (allow func()) {
	GinkgoHelper()
	return apiserver.Deny(ctx, apiserver.Denial{
		Name: "e2e-" + p.Name + "-" + part, Resources: []string{"pods"}, Operation: "CREATE",
		Conditions: []string{fmt.Sprintf("object.metadata.name.startsWith(%q)", p.Name+"-"+part+"-")},
	}, func() error {
		pod := &corev1.Pod{}
		pod.Namespace, pod.Name = "default", p.Name+"-"+part+"-try"
		pod.Spec.Containers = []corev1.Container{{Name: "try", Image: deployed.ToolboxImage}}
		return client.NewDryRunClient(world).Create(ctx, pod)
	})
}

// conversation is a long connection of a client. The server echoes all bytes.
type conversation struct{ net.Conn }

// talk opens one to a port of a client proxy.
func (p pair) talk(ctx context.Context, tunnel string) conversation {
	GinkgoHelper()
	port := tunneltest.Tunnel(ctx, p.ContainerNetworkTunnelProxy, tunnel, tunnelv1.TunnelReady).ClientProxyPort
	at := net.JoinHostPort(podOf(ctx, p.ContainerNetworkTunnelProxy, tunnelv1.RoleClient).Status.PodIP, strconv.Itoa(int(port)))
	var c conversation
	atNode(ctx, func() {
		connection, err := net.DialTimeout("tcp", at, 10*time.Second)
		Expect(err).NotTo(HaveOccurred())
		c = conversation{connection}
	})
	DeferCleanup(func() { _ = c.Close() })
	c.says("hello")
	return c
}

// says sends a text and expects it back.
func (c conversation) says(text string) {
	GinkgoHelper()
	Expect(tunneltest.Exchange(c, text)).To(Equal(text))
}

// echoing starts an echo server at the loopback of the node.
func echoing(ctx context.Context) int32 {
	GinkgoHelper()
	var listener net.Listener
	atNode(ctx, func() {
		var err error
		listener, err = net.Listen("tcp", "127.0.0.1:0")
		Expect(err).NotTo(HaveOccurred())
	})
	DeferCleanup(func() { _ = listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return int32(listener.Addr().(*net.TCPAddr).Port)
}

// redefine changes the spec of a pair.
func redefine(ctx context.Context, p *tunnelv1.ContainerNetworkTunnelProxy, how func(*tunnelv1.ContainerNetworkTunnelProxySpec)) {
	GinkgoHelper()
	Eventually(ctx, func() error {
		if err := world.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		how(&p.Spec)
		return world.Update(ctx, p)
	}).Should(Succeed())
}

var _ = Describe("A tunnel that is removed", func() {
	It("lets its streams continue, and frees its port immediately", func(ctx SpecContext) {
		echo := echoing(ctx)
		p := newPair(ctx)
		redefine(ctx, p.ContainerNetworkTunnelProxy, func(s *tunnelv1.ContainerNetworkTunnelProxySpec) {
			s.Tunnels = append(s.Tunnels, tunneltest.To("echo", echo), tunneltest.To("stays", echo))
		})
		former := tunneltest.Tunnel(ctx, p.ContainerNetworkTunnelProxy, "echo", tunnelv1.TunnelReady)
		stays := tunneltest.Tunnel(ctx, p.ContainerNetworkTunnelProxy, "stays", tunnelv1.TunnelReady)
		live, beside := p.talk(ctx, "echo"), p.talk(ctx, "stays")

		redefine(ctx, p.ContainerNetworkTunnelProxy, func(s *tunnelv1.ContainerNetworkTunnelProxySpec) {
			s.Tunnels = append(s.Tunnels[:1:1], s.Tunnels[2])
		})
		Eventually(ctx, func(g Gomega) {
			g.Expect(world.Get(ctx, client.ObjectKeyFromObject(p), p.ContainerNetworkTunnelProxy)).To(Succeed())
			g.Expect(p.Status.TunnelStatuses).To(HaveLen(2))
		}).Should(Succeed())
		_, err := fetches(ctx, p.visitor, fmt.Sprintf("%s:%d", p.Name, former.ClientProxyPort))
		Expect(err).To(HaveOccurred(), "the port is closed")
		live.says("still here")
		beside.says("still here")

		By("its port for another server, while its streams run")
		redefine(ctx, p.ContainerNetworkTunnelProxy, func(s *tunnelv1.ContainerNetworkTunnelProxySpec) {
			s.Tunnels = append(s.Tunnels, tunnelv1.TunnelConfiguration{Name: "next", ServerPort: p.server, ClientProxyPort: former.ClientProxyPort})
		})
		p.reaches(ctx, "next", "server")
		live.says("and here")
		beside.says("and here")
		Expect(tunneltest.Tunnel(ctx, p.ContainerNetworkTunnelProxy, "stays", tunnelv1.TunnelReady)).To(Equal(stays), "it was not touched")

		tunneltest.Delete(ctx, p.ContainerNetworkTunnelProxy)
		Expect(leftOf(ctx, p.ContainerNetworkTunnelProxy)).To(BeEmpty())
	}, SpecTimeout(limit))
})

var _ = Describe("The operator is killed", Serial, func() {
	It("while pairs are in every state; nothing is lost, and nothing is left", func(ctx SpecContext) {
		r := startRegistry(ctx, false, "", "")
		buildsImages(ctx, r)
		echo := echoing(ctx)
		n := tunneltest.Network(ctx)
		begin := func(network string) pair {
			p := tunneltest.NewProxy(network, tunneltest.To("echo", echo))
			tunneltest.Create(ctx, p)
			return pair{p, echo, client.ObjectKey{}}
		}
		begun := func() pair {
			p := begin(n.Name)
			tunneltest.Reaches(ctx, p.ContainerNetworkTunnelProxy, tunnelv1.StateRunning)
			return p
		}

		By("Running, with a stream")
		runs := begun()
		stream := runs.talk(ctx, "echo")
		web := tunneltest.Tunnel(ctx, runs.ContainerNetworkTunnelProxy, "echo", tunnelv1.TunnelReady)
		By("Failed, with a pod that is held back from deletion")
		failed := begun()
		letFailed := keep(ctx, podOf(ctx, failed.ContainerNetworkTunnelProxy, tunnelv1.RoleClient))
		Expect(world.WithWatch.Delete(ctx, podOf(ctx, failed.ContainerNetworkTunnelProxy, tunnelv1.RoleClient), client.GracePeriodSeconds(0))).To(Succeed())
		tunneltest.Reaches(ctx, failed.ContainerNetworkTunnelProxy, tunnelv1.StateFailed)
		By("deleted, with a pod that is held back from deletion")
		deleted := begun()
		letDeleted := keep(ctx, podOf(ctx, deleted.ContainerNetworkTunnelProxy, tunnelv1.RoleClient))
		Expect(world.Delete(ctx, deleted.ContainerNetworkTunnelProxy)).To(Succeed())
		expect.Shows(ctx, deleted.ContainerNetworkTunnelProxy, tunnelv1.ConditionProxiesReady, "False", tunnelv1.ReasonTerminating)
		By("Pending, without a network")
		late := tunneltest.NewNetwork()
		pending := begin(late.Name)
		expect.Shows(ctx, pending.ContainerNetworkTunnelProxy, tunnelv1.ConditionNetworkReady, "False", tunnelv1.ReasonNetworkNotFound)
		By("Starting, without one of its pods")
		starting := map[string]pair{}
		var allow []func()
		for _, part := range []string{"client", "server"} {
			p := tunneltest.NewProxy(n.Name, tunneltest.To("echo", echo))
			allow = append(allow, denyPod(ctx, p, part))
			tunneltest.Create(ctx, p)
			expect.Shows(ctx, p, tunnelv1.ConditionProxiesReady, "False", tunnelv1.ReasonRefused)
			Expect(p.Status.State).To(Equal(tunnelv1.StateStarting))
			starting[part] = pair{p, echo, client.ObjectKey{}}
		}
		By("BuildingImage, with a registry that does not answer")
		r.hold()
		building := begin(n.Name)
		tunneltest.Reaches(ctx, building.ContainerNetworkTunnelProxy, tunnelv1.StateBuildingImage)
		doomed := begin(n.Name)
		tunneltest.Reaches(ctx, doomed.ContainerNetworkTunnelProxy, tunnelv1.StateBuildingImage)
		Expect(world.Delete(ctx, doomed.ContainerNetworkTunnelProxy)).To(Succeed())

		killOperator(ctx)

		By("all continue from their states")
		stream.says("still here")
		r.release()
		for _, f := range allow {
			f()
		}
		letFailed(ctx)
		letDeleted(ctx)
		Expect(world.Create(ctx, late)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { tunneltest.Delete(ctx, late) })
		tunneltest.NetworkReaches(ctx, late, tunnelv1.NetworkRunning)
		for _, gone := range []pair{deleted, doomed} {
			expect.Gone(ctx, gone.ContainerNetworkTunnelProxy)
			Eventually(ctx, func() []string { return leftOf(ctx, gone.ContainerNetworkTunnelProxy) }).Should(BeEmpty())
		}
		for _, p := range []pair{building, starting["client"], starting["server"], pending} {
			tunneltest.Reaches(ctx, p.ContainerNetworkTunnelProxy, tunnelv1.StateRunning)
			p.talk(ctx, "echo")
		}
		Expect(tunneltest.Tunnel(ctx, runs.ContainerNetworkTunnelProxy, "echo", tunnelv1.TunnelReady)).To(Equal(web))
		stream.says("and here")
		Eventually(ctx, func() []string { return leftOf(ctx, failed.ContainerNetworkTunnelProxy) }).Should(BeEmpty())
		Expect(world.Get(ctx, client.ObjectKeyFromObject(failed), failed.ContainerNetworkTunnelProxy)).To(Succeed())
		Expect(failed.Status.State).To(Equal(tunnelv1.StateFailed))

		By("deleting all")
		for _, p := range []pair{runs, failed, pending, building, starting["client"], starting["server"]} {
			tunneltest.Delete(ctx, p.ContainerNetworkTunnelProxy)
			Expect(leftOf(ctx, p.ContainerNetworkTunnelProxy)).To(BeEmpty())
		}
		Expect(stray(ctx)).To(BeEmpty())
	}, SpecTimeout(2*limit))
})

// stray lists what is left of all pairs.
func stray(ctx context.Context) (left []string) {
	for _, list := range []client.ObjectList{&corev1.PodList{}, &corev1.SecretList{}, &corev1.ServiceList{}, &networkingv1.NetworkPolicyList{}} {
		for _, name := range apiserver.Names(ctx, list, client.HasLabels{tunnelv1.LabelProxy}) {
			left = append(left, fmt.Sprintf("%s %s", strings.TrimPrefix(fmt.Sprintf("%T", list), "*v1."), name))
		}
	}
	return left
}
