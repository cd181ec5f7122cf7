package gate

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/gateprocess"
	"github.com/bergctf/berg-operator/test/lib/limits"
	"github.com/bergctf/berg-operator/test/lib/strangers"
)

// create creates objects that end with the spec.
func create(ctx context.Context, objects ...client.Object) {
	GinkgoHelper()
	for _, object := range objects {
		Expect(k8s.Create(ctx, object)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(k8s.Delete(ctx, object))).To(Succeed()) })
	}
	// Ages are whole seconds.
	Eventually(func() time.Duration { return time.Since(objects[0].GetCreationTimestamp().Time) }).Should(BeNumerically(">", time.Second))
}

// newTaking returns a Gateway of another namespace with all ports of players, and a route for one of their hosts.
func newTaking(tenant, host, service string) []client.Object {
	takes := gateprocess.NewHTTPRoute(tenant, "takes", "taking", host, service)
	takes.Spec.Rules[0].Matches = []gatewayv1.HTTPRouteMatch{{Headers: []gatewayv1.HTTPHeaderMatch{{Name: "Host", Value: host}}}}
	takes.Spec.Rules = append(takes.Spec.Rules, gatewayv1.HTTPRouteRule{
		BackendRefs: takes.Spec.Rules[0].BackendRefs,
		Matches:     []gatewayv1.HTTPRouteMatch{{Path: &gatewayv1.HTTPPathMatch{Type: ptr.To(gatewayv1.PathMatchExact), Value: ptr.To("/")}}}, // before the path / of others
	})
	return []client.Object{gateprocess.NewGateway(tenant, "taking", gateprocess.Class, plainPort, securePort, rawPort), takes}
}

// conflicts waits until all listeners of a Gateway are Conflicted.
func conflicts(ctx context.Context, gateway client.Object, text string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var got gatewayv1.Gateway
		g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(gateway), &got)).To(Succeed())
		g.Expect(got.Status.Listeners).To(HaveLen(3))
		for _, listener := range got.Status.Listeners {
			conflicted := meta.FindStatusCondition(listener.Conditions, string(gatewayv1.ListenerConditionConflicted))
			g.Expect(conflicted).NotTo(BeNil())
			g.Expect(conflicted.Status).To(Equal(metav1.ConditionTrue))
			g.Expect(conflicted.Message).To(ContainSubstring(text))
		}
	}).WithContext(ctx).Should(Succeed())
}

var _ = Describe("A Gateway of the class in a namespace of others", Label("attack"), func() {
	It("gets no players of an older Gateway, and says why", func(ctx SpecContext) {
		const host = "shared." + domain
		play(ctx, "shared")
		create(ctx, gateprocess.NewGateway(namespace, "older", gateprocess.Class, plainPort, securePort, rawPort),
			gateprocess.NewHTTPRoute(namespace, "shared", "older", host, "shared"))
		gate := newReplica(ctx, "127.0.0.16", account(ctx), "GATEWAY_NAMESPACE=none")
		Eventually(gate.get).WithContext(ctx).WithArguments(host).Should(Equal("200 shared"))

		taking := newTaking(apiserver.Namespace(ctx), host, "none")
		create(ctx, taking...)
		conflicts(ctx, taking[0], "older Gateway")
		for range 20 {
			Expect(gate.get(ctx, host)).To(Equal("200 shared"))
		}
	}, SpecTimeout(limits.Scaled(2*time.Minute)))

	It("gets no players of a Gateway in GATEWAY_NAMESPACE, although it is older", func(ctx SpecContext) {
		const host = "ours." + domain
		play(ctx, "ours")
		tenant := apiserver.Namespace(ctx)
		Expect(gateprocess.SetPod(ctx, k8s, tenant, "theirs", play(ctx, "theirs"), "theirs")).To(Succeed())
		taking := newTaking(tenant, host, "theirs")
		create(ctx, taking...)
		ours := gateprocess.NewGateway(namespace, "ours", gateprocess.Class, plainPort, securePort, rawPort)
		create(ctx, ours, gateprocess.NewHTTPRoute(namespace, "ours", "ours", host, "ours"))

		By("a gate that has another setting: the older one gets them")
		control := newReplica(ctx, "127.0.0.17", account(ctx), "GATEWAY_NAMESPACE=none")
		Eventually(control.get).WithContext(ctx).WithArguments(host).Should(Equal("200 theirs"))
		conflicts(ctx, ours, "older Gateway")
		control.Kill()

		gate := newReplica(ctx, "127.0.0.18", account(ctx), "GATEWAY_NAMESPACE="+namespace)
		Eventually(gate.get).WithContext(ctx).WithArguments(host).Should(Equal("200 ours"))
		conflicts(ctx, taking[0], "GATEWAY_NAMESPACE")
		for range 20 {
			Expect(gate.get(ctx, host)).To(Equal("200 ours"))
		}
	}, SpecTimeout(limits.Scaled(3*time.Minute)))
})

var _ = Describe("The port of a replica for the operator", Label("attack"), func() {
	DescribeTable("is kept by no stranger", func(ctx SpecContext, sent string) {
		gate := newReplica(ctx, "127.0.0.19", account(ctx))
		crowd := &strangers.Crowd{Address: gate.admin, Request: sent, Stays: true}
		DeferCleanup(crowd.Leave)
		Expect(crowd.Join(ctx, 1000)).To(Succeed())
		for range 20 {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s/served?host=none.%s", gate.admin, domain), nil)
			Expect(err).NotTo(HaveOccurred())
			fresh := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: (&net.Dialer{Timeout: 10 * time.Second}).DialContext}}
			answer, err := fresh.Do(request)
			Expect(err).NotTo(HaveOccurred())
			Expect(answer.Body.Close()).To(Succeed())
			Expect(answer.StatusCode).To(Equal(http.StatusOK))
		}
		Eventually(crowd.Open).WithContext(ctx).WithTimeout(5*time.Second).Should(BeNumerically("<=", 512), "a request has ten seconds")
		Eventually(crowd.Open).WithContext(ctx).WithTimeout(limits.Scaled(time.Minute)).Should(BeZero())
	},
		Entry("whose body does not come", SpecTimeout(limits.Scaled(3*time.Minute)), strangers.Unfinished),
		Entry("who had an answer, and does not leave", SpecTimeout(limits.Scaled(3*time.Minute)), "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"),
	)
})
