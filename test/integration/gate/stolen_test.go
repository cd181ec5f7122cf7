package gate

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/gateprocess"
	"github.com/bergctf/berg-operator/test/lib/limits"
)

var _ = Describe("A stolen token of the gate", Label("attack"), func() {
	var thief client.Client
	var ns string
	const others = "example.com/other"
	entry := func(controller, gateway, condition string) gatewayv1.RouteParentStatus {
		return gatewayv1.RouteParentStatus{
			ParentRef: gatewayv1.ParentReference{Name: gatewayv1.ObjectName(gateway)}, ControllerName: gatewayv1.GatewayController(controller),
			Conditions: []metav1.Condition{{Type: condition, Status: metav1.ConditionTrue, Reason: condition, LastTransitionTime: metav1.Now()}},
		}
	}
	// write writes a status with the token, and change is what it changes.
	write := func(ctx context.Context, object client.Object, change func()) error {
		GinkgoHelper()
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
		before := object.DeepCopyObject().(client.Object)
		change()
		return thief.Status().Patch(ctx, object, client.MergeFrom(before))
	}
	BeforeEach(func(ctx SpecContext) {
		var err error
		thief, err = client.New(account(ctx), client.Options{Scheme: k8s.Scheme()})
		Expect(err).NotTo(HaveOccurred())
		ns = apiserver.Namespace(ctx)
		// The policy is in force a moment after it was created.
		foreign := gateprocess.NewGateway(ns, "foreign", "other", plainPort, securePort, rawPort)
		create(ctx, foreign)
		Eventually(func() error {
			return write(ctx, foreign, func() { foreign.Status.Addresses = []gatewayv1.GatewayStatusAddress{{Value: "192.0.2.1"}} })
		}).WithContext(ctx).Should(MatchError(apierrors.IsForbidden, "is refused by the policy"))
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(foreign), foreign)).To(Succeed())
	}, NodeTimeout(limits.Scaled(limits.Wait)))

	It("writes addresses of Gateways of its class only", func(ctx SpecContext) {
		own := gateprocess.NewGateway(ns, "own", gateprocess.Class, plainPort, securePort, rawPort)
		create(ctx, own)
		Expect(write(ctx, own, func() { own.Status.Addresses = []gatewayv1.GatewayStatusAddress{{Value: "192.0.2.1"}} })).To(Succeed())
	}, SpecTimeout(limits.Scaled(limits.Wait)))

	It("writes the status of no class of another controller", func(ctx SpecContext) {
		own, foreign := gateprocess.NewClass(gateprocess.Class, gateprocess.Controller), gateprocess.NewClass(ns, others)
		create(ctx, foreign)
		accept := func(class *gatewayv1.GatewayClass) func() {
			return func() { class.Status.Conditions = entry(others, "a", "Tried").Conditions }
		}
		Expect(write(ctx, foreign, accept(foreign))).To(MatchError(apierrors.IsForbidden, "is refused"))
		Expect(write(ctx, own, accept(own))).To(Succeed())
	}, SpecTimeout(limits.Scaled(limits.Wait)))

	It("changes nothing that other controllers say about routes", func(ctx SpecContext) {
		http, tls := gateprocess.NewHTTPRoute(ns, "a", "gateway", "a."+domain, "a"), gateprocess.NewTLSRoute(ns, "a", "gateway", "b."+domain, "a")
		create(ctx, http, tls)
		for route, status := range map[client.Object]*gatewayv1.RouteStatus{http: &http.Status.RouteStatus, tls: &tls.Status.RouteStatus} {
			Expect(k8s.Get(ctx, client.ObjectKeyFromObject(route), route)).To(Succeed())
			status.Parents = []gatewayv1.RouteParentStatus{entry(others, "gateway", "Accepted")}
			Expect(k8s.Status().Update(ctx, route)).To(Succeed())
			for name, parents := range map[string][]gatewayv1.RouteParentStatus{
				"removed":            {},
				"changed":            {entry(others, "gateway", "Refused")},
				"in addition to it":  {entry(others, "gateway", "Accepted"), entry("example.com/third", "gateway", "Accepted")},
				"replaced by theirs": {entry(gateprocess.Controller, "gateway", "Accepted")},
			} {
				Expect(write(ctx, route, func() { status.Parents = parents })).To(MatchError(apierrors.IsForbidden, "is refused"), name)
			}
			Expect(write(ctx, route, func() { status.Parents = append(status.Parents, entry(gateprocess.Controller, "gateway", "Accepted")) })).To(Succeed())
		}
	}, SpecTimeout(limits.Scaled(limits.Wait)))
})
