package gate

import (
	"os"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/bergctf/berg-operator/internal/kit/settings"
	"github.com/bergctf/berg-operator/internal/kit/settingsmap"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/gateprocess"
	"github.com/bergctf/berg-operator/test/lib/installed"
	"github.com/bergctf/berg-operator/test/lib/launch"
	"github.com/bergctf/berg-operator/test/lib/limits"
)

var _ = Describe("Replicas of the gate", func() {
	const host, gateway = "web." + domain, "gate"

	BeforeEach(func(ctx SpecContext) {
		play(ctx, "web")
		for _, object := range []client.Object{
			gateprocess.NewGateway(namespace, gateway, gateprocess.Class, plainPort, securePort, rawPort),
			gateprocess.NewHTTPRoute(namespace, "web", gateway, host, "web"), gateprocess.NewTLSRoute(namespace, "web", gateway, host, "web"),
		} {
			Expect(k8s.Create(ctx, object)).To(Succeed())
			DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(k8s.Delete(ctx, object))).To(Succeed()) })
		}
	})

	// accepted reports whether a replica has written the status of a route.
	accepted := func(g Gomega, ctx SpecContext, name string) {
		route := &gatewayv1.HTTPRoute{}
		g.Expect(k8s.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, route)).To(Succeed())
		g.Expect(route.Status.Parents).NotTo(BeEmpty())
	}
	add := func(ctx SpecContext, name string) {
		GinkgoHelper()
		route := gateprocess.NewHTTPRoute(namespace, name, gateway, name+"."+domain, "web")
		Expect(k8s.Create(ctx, route)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(k8s.Delete(ctx, route))).To(Succeed()) })
	}

	It("lose only their own connections when they are killed, and another one writes the statuses", func(ctx SpecContext) {
		rc := account(ctx)
		killed := newReplica(ctx, "127.0.0.11", rc)
		Eventually(accepted).WithContext(ctx).WithArguments(ctx, "web").Should(Succeed())
		other := newReplica(ctx, "127.0.0.12", rc)
		Eventually(other.get).WithContext(ctx).WithArguments(host).Should(Equal("200 web"))
		kept, lost := other.stream(ctx, host), killed.stream(ctx, host)
		Expect(kept("before")).To(Equal("before"))
		Expect(lost("before")).To(Equal("before"))

		killed.Kill()
		Expect(lost("after")).NotTo(Equal("after"))
		for range 20 {
			Expect(kept("after")).To(Equal("after"))
			Expect(other.get(ctx, host)).To(Equal("200 web"))
		}
		add(ctx, "later")
		Eventually(other.get).WithContext(ctx).WithArguments("later." + domain).Should(Equal("200 web"))
		Eventually(accepted).WithContext(ctx).WithArguments(ctx, "later").Should(Succeed())
	}, SpecTimeout(limits.Scaled(4*time.Minute)))

	It("finish their streams within the setting when they end, and take no new connection", func(ctx SpecContext) {
		ends := newReplica(ctx, "127.0.0.13", account(ctx), "GATE_DRAIN=1h")
		Eventually(ends.get).WithContext(ctx).WithArguments(host).Should(Equal("200 web"))
		stream := ends.stream(ctx, host)
		Expect(stream("before")).To(Equal("before"))
		Expect(ends.Signal(syscall.SIGTERM)).To(Succeed())
		Eventually(ends.get).WithContext(ctx).WithArguments(host).Should(ContainSubstring("connection refused"))
		Expect(stream("while it ends")).To(Equal("while it ends"))
		Consistently(ends.Exited(), 2*time.Second).ShouldNot(BeClosed())
		Expect(stream("later")).To(Equal("later"))
	}, SpecTimeout(limits.Scaled(2*time.Minute)))

	// A replica that starts again takes no connection while the streams of players continue.
	It("start again for a changed setting of their own, and not for one of another program", func(ctx SpecContext) {
		changes := newReplica(ctx, "127.0.0.21", account(ctx))
		Eventually(changes.get).WithContext(ctx).WithArguments(host).Should(Equal("200 web"))
		stream := changes.stream(ctx, host)
		Expect(stream("before")).To(Equal("before"))

		By("changing one of the operator")
		shared := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: installed.Namespace, Name: settings.ConfigMap}, Data: map[string]string{"CHALLENGE_DOMAIN": "changed.example"}}
		apiserver.Create(ctx, shared)
		Consistently(changes.get).WithContext(ctx).WithArguments(host).WithTimeout(settingsmap.Spread + 2*time.Second).Should(Equal("200 web"))
		Expect(stream("later")).To(Equal("later"))

		By("changing one of the gate")
		shared.Data["GATE_DRAIN"] = "45s"
		Expect(k8s.Update(ctx, shared)).To(Succeed())
		Eventually(changes.get).WithContext(ctx).WithArguments(host).WithTimeout(settingsmap.Spread + 10*time.Second).Should(ContainSubstring("connection refused"))
	}, SpecTimeout(limits.Scaled(2*time.Minute)))

	It("serve what they know while the API server is away, and what is new when it is back", func(ctx SpecContext) {
		line, err := launch.NewGate(account(ctx))
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(line.Close)
		alone := newReplica(ctx, "127.0.0.14", line.Config())
		Eventually(alone.get).WithContext(ctx).WithArguments(host).Should(Equal("200 web"))
		Eventually(accepted).WithContext(ctx).WithArguments(ctx, "web").Should(Succeed()) // it leads
		stream := alone.stream(ctx, host)
		line.SetShut(true)
		Consistently(func(g Gomega) {
			g.Expect(alone.get(ctx, host)).To(Equal("200 web"))
			g.Expect(stream("away")).To(Equal("away"))
			g.Expect(alone.certificate(host)).To(MatchRegexp("^[0-9]+$"))
			g.Expect(alone.Exited()).NotTo(BeClosed())
		}, away(), time.Second).WithContext(ctx).Should(Succeed())
		add(ctx, "meantime")
		line.SetShut(false)
		Eventually(alone.get).WithContext(ctx).WithArguments("meantime." + domain).Should(Equal("200 web"))
		Eventually(accepted).WithContext(ctx).WithArguments(ctx, "meantime").Should(Succeed())
		Expect(stream("back")).To(Equal("back"))
	}, SpecTimeout(away()+limits.Scaled(4*time.Minute)))

	It("serve a new certificate to new connections, and keep the others", func(ctx SpecContext) {
		gate := newReplica(ctx, "127.0.0.15", account(ctx))
		Eventually(gate.get).WithContext(ctx).WithArguments(host).Should(Equal("200 web"))
		Eventually(gate.certificate).WithArguments(host).Should(MatchRegexp("^[0-9]+$"))
		former, stream := gate.certificate(host), gate.stream(ctx, host)
		renewed, err := gateprocess.NewCertificate(namespace, "renewed.example")
		Expect(err).NotTo(HaveOccurred())
		secret := &corev1.Secret{}
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(renewed), secret)).To(Succeed())
		secret.Data = renewed.Data
		Expect(k8s.Update(ctx, secret)).To(Succeed())
		Eventually(gate.certificate).WithArguments(host).Should(And(MatchRegexp("^[0-9]+$"), Not(Equal(former))))
		Expect(stream("still there")).To(Equal("still there"))
	}, SpecTimeout(limits.Scaled(2*time.Minute)))
})

// away is how long the API server is away: as long as a replica needs to lose its lease, or GATE_AWAY.
func away() time.Duration {
	if d, err := time.ParseDuration(os.Getenv("GATE_AWAY")); err == nil {
		return d
	}
	return 40 * time.Second
}
