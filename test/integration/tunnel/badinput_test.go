package tunnel

import (
	"context"
	"net"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/tunnel/network"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/tunneltest"
)

var _ = Describe("Bad input", func() {
	DescribeTable("is refused by the API server", Label("versions"), func(ctx context.Context, spoil func(*tunnelv1.ContainerNetworkTunnelProxy), says string) {
		p := tunneltest.NewProxy("nowhere", tunneltest.To("a", 80))
		spoil(p)
		err := k8s.Create(ctx, p)
		Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
		Expect(err.Error()).To(ContainSubstring(says))
	},
		Entry("no network", func(p *tunnelv1.ContainerNetworkTunnelProxy) { p.Spec.ContainerNetworkName = "" }, "containerNetworkName"),
		Entry("serverPort 0", func(p *tunnelv1.ContainerNetworkTunnelProxy) { p.Spec.Tunnels[0].ServerPort = 0 }, "serverPort"),
		Entry("serverPort 70000", func(p *tunnelv1.ContainerNetworkTunnelProxy) { p.Spec.Tunnels[0].ServerPort = 70000 }, "serverPort"),
		Entry("a name twice", func(p *tunnelv1.ContainerNetworkTunnelProxy) {
			p.Spec.Tunnels = append(p.Spec.Tunnels, tunneltest.To("a", 81))
		}, "names of tunnels must be unique"),
		Entry("an empty name", func(p *tunnelv1.ContainerNetworkTunnelProxy) { p.Spec.Tunnels[0].Name = "" }, "name"),
		Entry("clientProxyPort -1", func(p *tunnelv1.ContainerNetworkTunnelProxy) { p.Spec.Tunnels[0].ClientProxyPort = -1 }, "clientProxyPort"),
		Entry("clientProxyPort 65536", func(p *tunnelv1.ContainerNetworkTunnelProxy) { p.Spec.Tunnels[0].ClientProxyPort = 65536 }, "clientProxyPort"),
		Entry("a port twice", func(p *tunnelv1.ContainerNetworkTunnelProxy) {
			p.Spec.Tunnels = []tunnelv1.TunnelConfiguration{{Name: "a", ServerPort: 80, ClientProxyPort: 8080}, {Name: "b", ServerPort: 81, ClientProxyPort: 8080}}
		}, "same clientProxyPort"),
		Entry("a port twice, once with all addresses spelled out", func(p *tunnelv1.ContainerNetworkTunnelProxy) {
			p.Spec.Tunnels = []tunnelv1.TunnelConfiguration{{Name: "a", ServerPort: 80, ClientProxyPort: 8080}, {Name: "b", ServerPort: 81, ClientProxyPort: 8080, ClientProxyAddress: "0.0.0.0"}}
		}, "same clientProxyPort"),
		Entry("a name that no Service can have", func(p *tunnelv1.ContainerNetworkTunnelProxy) { p.Name = "1.example" }, "a Service has the same name"),
	)

	It("changes of immutable fields are refused", func(ctx context.Context) {
		p := tunneltest.Proxy(ctx, "nowhere")
		for field, change := range map[string]func(*tunnelv1.ContainerNetworkTunnelProxySpec){
			"containerNetworkName": func(s *tunnelv1.ContainerNetworkTunnelProxySpec) { s.ContainerNetworkName = "elsewhere" },
			"baseImage":            func(s *tunnelv1.ContainerNetworkTunnelProxySpec) { s.BaseImage = "example.com/base:1" },
			"aliases":              func(s *tunnelv1.ContainerNetworkTunnelProxySpec) { s.Aliases = []string{"other"} },
		} {
			Eventually(func() error {
				Expect(k8s.Get(ctx, client.ObjectKeyFromObject(p), p)).To(Succeed())
				change(&p.Spec)
				return k8s.Update(ctx, p)
			}).Should(And(Satisfy(apierrors.IsInvalid), MatchError(ContainSubstring(field+" cannot be changed"))), field)
		}
	})

	It("a network that never appears keeps a pair Pending, without pods, and holds up no deletion", func(ctx context.Context) {
		p := tunneltest.Proxy(ctx, "nowhere", tunneltest.To("a", 80))
		expect.Finalizer(ctx, p, tunnelv1.Finalizer)
		expect.Shows(ctx, p, tunnelv1.ConditionNetworkReady, "False", tunnelv1.ReasonNetworkNotFound)
		expect.Shows(ctx, p, tunnelv1.ConditionStalled, "True", tunnelv1.ReasonNetworkNotFound)
		Expect(p.Status.State).To(Equal(tunnelv1.StatePending))
		Expect(leftOf(ctx, p)).To(BeEmpty())
		goneWithAll(ctx, p)
	})

	It("a tunnel that cannot be prepared fails alone", func(ctx context.Context) {
		p, echo := running(ctx)
		taken, err := net.Listen("tcp", "0.0.0.0:0")
		Expect(err).NotTo(HaveOccurred())
		defer func() { _ = taken.Close() }()
		web := tunneltest.Tunnel(ctx, p, "web", tunnelv1.TunnelReady)
		update(ctx, p, func(s *tunnelv1.ContainerNetworkTunnelProxySpec) {
			s.Tunnels = append(s.Tunnels,
				tunnelv1.TunnelConfiguration{Name: "taken", ServerPort: echo.Port, ClientProxyPort: int32(taken.Addr().(*net.TCPAddr).Port)},
				tunnelv1.TunnelConfiguration{Name: "elsewhere", ServerPort: echo.Port, ClientProxyAddress: "192.0.2.7"},
				tunnelv1.TunnelConfiguration{Name: "control", ServerPort: echo.Port, ClientProxyPort: 36672},
				tunnelv1.TunnelConfiguration{Name: "no-address", ServerPort: echo.Port, ClientProxyAddress: "here"},
				tunnelv1.TunnelConfiguration{Name: "metadata", ServerAddress: "169.254.169.254", ServerPort: 80},
				tunnelv1.TunnelConfiguration{Name: "neighbour", ServerAddress: "192.0.2.1", ServerPort: 80},
				tunnelv1.TunnelConfiguration{Name: "kubelet", ServerPort: 10250},
				tunnelv1.TunnelConfiguration{Name: "api-server", ServerAddress: "127.0.0.1", ServerPort: 6443},
			)
		})
		for name, says := range map[string]string{
			"elsewhere": "", "control": "clientProxyPort", "no-address": "clientProxyAddress",
			"metadata": "serverAddress", "neighbour": "TUNNEL_ALLOWED_SERVERS", "kubelet": "serverPort", "api-server": "serverPort",
		} {
			Expect(tunneltest.Tunnel(ctx, p, name, tunnelv1.TunnelFailed).ErrorMessage).To(And(Not(BeEmpty()), ContainSubstring(says)), name)
		}
		Expect(p.Status.State).To(Equal(tunnelv1.StateRunning))
		Expect(tunneltest.Tunnel(ctx, p, "web", tunnelv1.TunnelReady)).To(Equal(web))
		through(web.ClientProxyPort)
		expect.Shows(ctx, p, tunnelv1.ConditionTunnelsReady, "False", tunnelv1.ReasonTunnelFailed)
		expect.Shows(ctx, p, tunnelv1.ConditionReady, "False", tunnelv1.ReasonTunnelFailed)

		By("a port that is in use")
		other := tunneltest.Tunnel(ctx, p, "taken", tunnelv1.TunnelReady)
		Expect(other.ClientProxyPort).NotTo(BeEquivalentTo(taken.Addr().(*net.TCPAddr).Port))
		Expect(other.Message).To(And(ContainSubstring("is in use"), ContainSubstring(strconv.Itoa(int(other.ClientProxyPort)))))
		through(other.ClientProxyPort)
	})

	It("a server that does not answer is named in the status, until it answers", func(ctx context.Context) {
		p, _ := running(ctx)
		web := tunneltest.Tunnel(ctx, p, "web", tunnelv1.TunnelReady)
		through(web.ClientProxyPort)
		away, err := net.Listen("tcp", "127.0.0.1:0")
		Expect(err).NotTo(HaveOccurred())
		at := away.Addr().(*net.TCPAddr)
		Expect(away.Close()).To(Succeed())
		update(ctx, p, func(s *tunnelv1.ContainerNetworkTunnelProxySpec) {
			s.Tunnels = append(s.Tunnels, tunneltest.To("away", int32(at.Port)))
		})
		waiting, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(tunneltest.Tunnel(ctx, p, "away", tunnelv1.TunnelReady).ClientProxyPort))))
		Expect(err).NotTo(HaveOccurred())
		defer func() { _ = waiting.Close() }()
		expect.Shows(ctx, p, tunnelv1.ConditionServerReachable, "False", tunnelv1.ReasonServerUnreachable)
		expect.Shows(ctx, p, tunnelv1.ConditionReady, "True", tunnelv1.ReasonTunnelsReady)
		Expect(meta.FindStatusCondition(p.Status.Conditions, tunnelv1.ConditionServerReachable).Message).To(ContainSubstring("away: "))

		server, err := net.ListenTCP("tcp", at)
		Expect(err).NotTo(HaveOccurred())
		defer func() { _ = server.Close() }()
		expect.Shows(ctx, p, tunnelv1.ConditionServerReachable, "True", tunnelv1.ReasonServerReachable)
	})

	It("an existing object that does not belong to the pair is left untouched, and reported", func(ctx context.Context) {
		n := tunneltest.Network(ctx)
		p := tunneltest.NewProxy(n.Name)
		foreign := &corev1.Service{}
		foreign.Namespace, foreign.Name = n.Status.NetworkName, p.Name
		foreign.Spec.Ports = []corev1.ServicePort{{Port: 80}}
		Expect(k8s.Create(ctx, foreign)).To(Succeed())
		tunneltest.Create(ctx, p)
		expect.Shows(ctx, p, tunnelv1.ConditionProxiesReady, "False", tunnelv1.ReasonOwnershipConflict)
		left := foreign.DeepCopy()
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(foreign), left)).To(Succeed())
		Expect(left.ResourceVersion).To(Equal(foreign.ResourceVersion))
		goneWithAll(ctx, p)
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(foreign), left)).To(Succeed())
	})

	It("the host that was named is missing", func(ctx context.Context) {
		n := tunneltest.Network(ctx)
		p := tunneltest.NewProxy(n.Name)
		p.Annotations = map[string]string{tunnelv1.AnnotationHostNode: "no-such-node"}
		tunneltest.Create(ctx, p)
		expect.Shows(ctx, p, tunnelv1.ConditionProxiesReady, "False", tunnelv1.ReasonHostNotReady)
		Expect(p.Status.State).To(Equal(tunnelv1.StatePending))
	})
})

var _ = Describe("A container network", func() {
	inMode := func(mode tunnelv1.ContainerNetworkMode, name string) func(*tunnelv1.ContainerNetwork) {
		return func(n *tunnelv1.ContainerNetwork) { n.Spec.Mode, n.Spec.NetworkName = mode, name }
	}

	It("has its own namespace, which is deleted with it", func(ctx context.Context) {
		n := tunneltest.Network(ctx)
		ns := apiserver.Get[corev1.Namespace](ctx, client.ObjectKey{Name: n.Status.NetworkName})
		Expect(n.Status.ID).To(Equal(string(ns.UID)))
		Expect(n.Status.Driver).To(Equal("kubernetes"))
		expect.Shows(ctx, n, tunnelv1.ConditionReady, "True", tunnelv1.ReasonNetworkReady)
		tunneltest.Delete(ctx, n)
		expect.Gone(ctx, ns)
	})

	It("waits to be deleted until no proxy uses it", func(ctx context.Context) {
		p, _ := running(ctx)
		n := &tunnelv1.ContainerNetwork{}
		n.Name = p.Spec.ContainerNetworkName
		Expect(k8s.Delete(ctx, n)).To(Succeed())
		expect.Shows(ctx, n, tunnelv1.ConditionNamespaceReady, "False", tunnelv1.ReasonInUse)
		expect.Shows(ctx, n, tunnelv1.ConditionReady, "False", tunnelv1.ReasonInUse)
		through(tunneltest.Tunnel(ctx, p, "web", tunnelv1.TunnelReady).ClientProxyPort)
		goneWithAll(ctx, p)
		expect.Gone(ctx, n)
	})

	It("uses an existing namespace, and does not delete it", func(ctx context.Context) {
		name := tunneltest.Existing(ctx)
		n := tunneltest.Network(ctx, inMode(tunnelv1.ModeExisting, name))
		ns := apiserver.Get[corev1.Namespace](ctx, client.ObjectKey{Name: name})
		tunneltest.Delete(ctx, n)
		after := apiserver.Get[corev1.Namespace](ctx, client.ObjectKey{Name: name})
		Expect(after.DeletionTimestamp).To(BeNil())
		Expect(after.Labels).To(Equal(ns.Labels))
		Expect(after.Annotations).NotTo(HaveKey(ContainSubstring("container-network-uid")))
	})

	It("does not take a namespace that was not made for it", func(ctx context.Context) {
		name := apiserver.Namespace(ctx)
		n := tunneltest.NewNetwork(inMode(tunnelv1.ModeSession, name))
		Expect(k8s.Create(ctx, n)).To(Succeed())
		tunneltest.NetworkReaches(ctx, n, tunnelv1.NetworkFailedToStart)
		Expect(n.Status.Message).To(ContainSubstring("left untouched"))
		expect.Shows(ctx, n, tunnelv1.ConditionStalled, "True", tunnelv1.ReasonNamespaceTaken)
		tunneltest.Delete(ctx, n)
		Expect(k8s.Get(ctx, client.ObjectKey{Name: name}, &corev1.Namespace{})).To(Succeed())
	})

	It("does not take a namespace that another user marks as made for it", func(ctx context.Context) {
		name := apiserver.Namespace(ctx)
		n := tunneltest.NewNetwork(inMode(tunnelv1.ModeSession, name))
		Expect(k8s.Create(ctx, n)).To(Succeed())
		tunneltest.NetworkReaches(ctx, n, tunnelv1.NetworkFailedToStart)
		forged := apiserver.Get[corev1.Namespace](ctx, client.ObjectKey{Name: name})
		apiserver.Change(ctx, forged, func() {
			network.OwnershipLabels.For(n.UID, nil).SetOn(forged)
			forged.OwnerReferences = []metav1.OwnerReference{{APIVersion: tunnelv1.GroupVersion.String(), Kind: "ContainerNetwork", Name: n.Name, UID: n.UID}}
		})
		Consistently(func(g Gomega) {
			g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(n), n)).To(Succeed())
			g.Expect(n.Status.State).To(Equal(tunnelv1.NetworkFailedToStart))
			g.Expect(apiserver.Names(ctx, &rbacv1.RoleBindingList{}, client.InNamespace(name))).To(BeEmpty())
		}).WithTimeout(3 * time.Second).Should(Succeed())
		apiserver.Change(ctx, forged, func() { forged.OwnerReferences = nil }) // or the garbage collector deletes it
		tunneltest.Delete(ctx, n)
		Expect(k8s.Get(ctx, client.ObjectKey{Name: name}, forged)).To(Succeed())
		Expect(forged.DeletionTimestamp).To(BeNil())
	})

	It("that must exist and does not is NotFound until it exists; one that is deleted is Removed", func(ctx context.Context) {
		n := tunneltest.NewNetwork(inMode(tunnelv1.ModeExisting, "integration-"+strings.ToLower(CurrentSpecReport().LeafNodeText[:4])+"x"))
		Expect(k8s.Create(ctx, n)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { tunneltest.Delete(ctx, n) })
		tunneltest.NetworkReaches(ctx, n, tunnelv1.NetworkNotFound)
		ns := &corev1.Namespace{}
		ns.Name = n.Spec.NetworkName
		Expect(k8s.Create(ctx, ns)).To(Succeed())
		By("without the label of an administrator")
		expect.Shows(ctx, n, tunnelv1.ConditionConfined, "False", tunnelv1.ReasonRefused)
		Expect(n.Status.Message).To(ContainSubstring("kubectl label namespace " + ns.Name + " " + tunneltest.LabelOperator + "=allowed"))
		apiserver.LabelNamespace(ctx, ns.Name, tunneltest.LabelOperator, "allowed")
		tunneltest.NetworkReaches(ctx, n, tunnelv1.NetworkRunning)
		tunneltest.Delete(ctx, ns)
		tunneltest.NetworkReaches(ctx, n, tunnelv1.NetworkRemoved)
	})

	It("that is persistent stays until a cleanup network deletes it", func(ctx context.Context) {
		name := "integration-kept-" + tunneltest.NewNetwork().Name
		first := tunneltest.Network(ctx, inMode(tunnelv1.ModePersistent, name))
		tunneltest.Delete(ctx, first)
		ns := apiserver.Get[corev1.Namespace](ctx, client.ObjectKey{Name: name})
		Expect(ns.DeletionTimestamp).To(BeNil())
		last := tunneltest.Network(ctx, inMode(tunnelv1.ModeCleanup, name))
		tunneltest.Delete(ctx, last)
		expect.Gone(ctx, ns)
	})

	It("must be named unless it is made for a session, and cannot be changed", func(ctx context.Context) {
		err := k8s.Create(ctx, tunneltest.NewNetwork(inMode(tunnelv1.ModeExisting, "")))
		Expect(err).To(MatchError(ContainSubstring("networkName must be set")))
		n := tunneltest.Network(ctx)
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(n), n)).To(Succeed())
		n.Spec.IPv6 = true
		Expect(k8s.Update(ctx, n)).To(MatchError(ContainSubstring("cannot be changed")))
	})
})
