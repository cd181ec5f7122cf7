package gate

import (
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
)

var _ = Describe("A Gateway of the class in a namespace of others", func() {
	const host = "shared." + domain

	It("gets no players of an older Gateway, and says why", func(ctx SpecContext) {
		play(ctx, "shared")
		older := gateprocess.NewGateway(namespace, "older", gateprocess.Class, plainPort, securePort, rawPort)
		route := gateprocess.NewHTTPRoute(namespace, "shared", "older", host, "shared")
		for _, object := range []client.Object{older, route} {
			Expect(k8s.Create(ctx, object)).To(Succeed())
			DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(k8s.Delete(ctx, object))).To(Succeed()) })
		}
		Eventually(func() time.Duration { return time.Since(older.CreationTimestamp.Time) }).Should(BeNumerically(">", time.Second)) // ages are whole seconds
		gate := newReplica(ctx, "127.0.0.16", account(ctx))
		Eventually(gate.get).WithContext(ctx).WithArguments(host).Should(Equal("200 shared"))

		tenant := apiserver.Namespace(ctx)
		taking := gateprocess.NewGateway(tenant, "taking", gateprocess.Class, plainPort, securePort, rawPort)
		takes := gateprocess.NewHTTPRoute(tenant, "takes", "taking", host, "none")
		takes.Spec.Rules[0].Matches = []gatewayv1.HTTPRouteMatch{{Headers: []gatewayv1.HTTPHeaderMatch{{Name: "Host", Value: host}}}}
		takes.Spec.Rules = append(takes.Spec.Rules, gatewayv1.HTTPRouteRule{Matches: []gatewayv1.HTTPRouteMatch{
			{Path: &gatewayv1.HTTPPathMatch{Type: ptr.To(gatewayv1.PathMatchExact), Value: ptr.To("/")}}, // before the path / of others
		}})
		Expect(k8s.Create(ctx, taking)).To(Succeed())
		Expect(k8s.Create(ctx, takes)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(taking), taking)).To(Succeed())
			g.Expect(taking.Status.Listeners).To(HaveLen(3))
			for _, listener := range taking.Status.Listeners {
				conflicted := meta.FindStatusCondition(listener.Conditions, string(gatewayv1.ListenerConditionConflicted))
				g.Expect(conflicted).NotTo(BeNil())
				g.Expect(conflicted.Status).To(Equal(metav1.ConditionTrue))
				g.Expect(conflicted.Message).To(ContainSubstring("older Gateway"))
			}
		}).WithContext(ctx).Should(Succeed())
		for range 20 {
			Expect(gate.get(ctx, host)).To(Equal("200 shared"))
		}
	}, SpecTimeout(limits.Scaled(2*time.Minute)))
})
