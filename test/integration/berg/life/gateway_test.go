package life

import (
	"context"
	"net"
	"net/netip"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
)

var _ = Describe("An instance with a host name", func() {
	// unaccepted makes a Gateway with a listener that no controller accepts, and an operator that uses it.
	unaccepted := func(ctx context.Context, address netip.AddrPort) *gatewayv1.Gateway {
		GinkgoHelper()
		ns := apiserver.Namespace(ctx)
		class := &gatewayv1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: ns}, Spec: gatewayv1.GatewayClassSpec{ControllerName: "example.com/absent"}}
		apiserver.Create(ctx, class)
		g := &gatewayv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "gate"}}
		g.Spec.GatewayClassName = gatewayv1.ObjectName(ns)
		g.Spec.Listeners = []gatewayv1.Listener{{Name: "web", Port: gatewayv1.PortNumber(address.Port()), Protocol: gatewayv1.HTTPProtocolType}}
		Expect(k8s.Create(ctx, g)).To(Succeed())
		inprocess.Restart(map[string]string{
			"GATEWAY_NAMESPACE": ns, "GATEWAY_NAME": "gate", "CHALLENGE_HTTP_LISTENER_NAME": "web", "CHALLENGE_CONNECT_TIMEOUT": "30s",
		}, nil)
		return g
	}
	accepted := func(kind string, status metav1.ConditionStatus) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: "Said", Message: "by its controller", LastTransitionTime: metav1.Now()}
	}
	// answer is what a controller says of the route of an instance.
	answer := func(ctx context.Context, i *bergv1.ChallengeInstance, g *gatewayv1.Gateway, status metav1.ConditionStatus) {
		GinkgoHelper()
		route := &gatewayv1.HTTPRoute{}
		Expect(k8s.Get(ctx, client.ObjectKey{Namespace: i.Status.Namespace, Name: "web-8080"}, route)).To(Succeed())
		before := route.DeepCopy()
		route.Status.Parents = []gatewayv1.RouteParentStatus{{
			ParentRef: route.Spec.ParentRefs[0], ControllerName: "example.com/absent", Conditions: []metav1.Condition{accepted("Accepted", status)},
		}}
		Expect(k8s.Status().Patch(ctx, route, client.MergeFrom(before))).To(Succeed())
	}

	It("is Running when a controller accepts its Gateway and its route, and says until then what is missing", func(ctx context.Context) {
		listener, err := net.Listen("tcp", netip.AddrPortFrom(ownAddress(), 0).String())
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(listener.Close)
		g := unaccepted(ctx, netip.MustParseAddrPort(listener.Addr().String()))
		ns := bergtest.Publish(ctx, "routed", bergtest.OneContainer)
		i := bergtest.Instance(ctx, ns, "routed")
		expect.Shows(ctx, i, bergv1.ConditionRoutesCreated, metav1.ConditionFalse, bergv1.ReasonGatewayNotReady)
		Expect(meta.FindStatusCondition(i.Status.Conditions, bergv1.ConditionRoutesCreated).Message).To(And(
			ContainSubstring(g.Namespace+"/gate"), ContainSubstring("GatewayClass "+g.Namespace), ContainSubstring("controller example.com/absent")))
		Expect(i.Status.Cause).To(Equal(bergv1.CauseRefused))
		untilPods(ctx, i, corev1.PodRunning)
		Consistently(func(eventually Gomega) {
			eventually.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(i), i)).To(Succeed())
			eventually.Expect(i.Status.Phase).To(Equal(bergv1.PhaseStarting))
		}).WithTimeout(3 * time.Second).Should(Succeed())

		By("a controller that accepts the Gateway, and not yet the route")
		before := g.DeepCopy()
		g.Status.Conditions = []metav1.Condition{accepted("Accepted", "True"), accepted("Programmed", "True")}
		g.Status.Addresses = []gatewayv1.GatewayStatusAddress{{Type: ptr.To(gatewayv1.IPAddressType), Value: ownAddress().String()}}
		Expect(k8s.Status().Patch(ctx, g, client.MergeFrom(before))).To(Succeed())
		expect.Shows(ctx, i, bergv1.ConditionRoutesCreated, metav1.ConditionUnknown, bergv1.ReasonRoutePending)
		Expect(i.Status.Phase).To(Equal(bergv1.PhaseStarting))
		Expect(i.Status.Cause).To(Equal(bergv1.CauseAddressPending))

		By("a controller that accepts the route")
		answer(ctx, i, g, metav1.ConditionTrue)
		expect.Reaches(ctx, i, bergv1.PhaseRunning)
		Expect(meta.FindStatusCondition(i.Status.Conditions, bergv1.ConditionRoutesCreated).Message).To(ContainSubstring("the operator has connected"))
		conn, err := listener.Accept()
		Expect(err).NotTo(HaveOccurred())
		Expect(conn.Close()).To(Succeed())

		By("a controller that refuses the route later")
		answer(ctx, i, g, metav1.ConditionFalse)
		expect.Shows(ctx, i, bergv1.ConditionHealthy, metav1.ConditionFalse, bergv1.ReasonRouteRefused)
		Expect(i.Status.Phase).To(Equal(bergv1.PhaseRunning))
		Expect(meta.IsStatusConditionFalse(i.Status.Conditions, bergv1.ConditionReady)).To(BeTrue())
		answer(ctx, i, g, metav1.ConditionTrue)
		expect.Shows(ctx, i, bergv1.ConditionReady, metav1.ConditionTrue, bergv1.ReasonReady)

		By("a Gateway that is deleted")
		Expect(k8s.Delete(ctx, g)).To(Succeed())
		expect.Shows(ctx, i, bergv1.ConditionReady, metav1.ConditionFalse, bergv1.ReasonGatewayNotReady)
	})

	It("is Ready once, and no event of its start is a Warning", func(ctx context.Context) {
		inprocess.Restart(map[string]string{"CHALLENGE_CONNECT_TIMEOUT": "30s", "PULL_SECRET_NAME": ""}, nil)
		node := ownAddress()
		listener, err := net.Listen("tcp", netip.AddrPortFrom(node, 0).String())
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(listener.Close)
		ns := bergtest.Namespace(ctx)
		bergtest.Challenge(ctx, ns, "once", openPort(listener))
		i := bergtest.Instance(ctx, ns, "once")
		versions := bergtest.Versions(ctx, i)
		expect.Reaches(ctx, i, bergv1.PhaseStarting)
		untilPods(ctx, i, corev1.PodRunning)
		started := func(probed, ready bool) {
			setPods(ctx, i, func(p *corev1.Pod) {
				p.Status.PodIP, p.Status.PodIPs = node.String(), []corev1.PodIP{{IP: node.String()}}
				for n := range p.Status.ContainerStatuses {
					p.Status.ContainerStatuses[n].Started, p.Status.ContainerStatuses[n].Ready = ptr.To(probed), ready
				}
			})
		}
		started(false, false)
		expect.Reaches(ctx, i, bergv1.PhaseRunning)
		// What the node reports of a healthy pod, each in a status of its own.
		for _, report := range []func(){func() { started(true, false) }, func() { started(true, true) }, func() { setPods(ctx, i, becomeReady) }} {
			report()
			Consistently(func(eventually Gomega) {
				eventually.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(i), i)).To(Succeed())
				eventually.Expect(meta.IsStatusConditionTrue(i.Status.Conditions, bergv1.ConditionReady)).To(BeTrue())
			}).WithTimeout(time.Second).Should(Succeed())
		}
		changes := 0
		for last, seen := false, false; !seen; {
			var e watch.Event
			Eventually(ctx, versions).Should(Receive(&e))
			if v, ok := e.Object.(*bergv1.ChallengeInstance); ok && v.UID == i.UID {
				if meta.IsStatusConditionTrue(v.Status.Conditions, bergv1.ConditionReady) != last {
					last, changes = !last, changes+1
				}
				seen = v.ResourceVersion == i.ResourceVersion
			}
		}
		Expect(changes).To(Equal(1), "changes of Ready")
		var events eventsv1.EventList
		Expect(k8s.List(ctx, &events, client.InNamespace(ns))).To(Succeed())
		for _, e := range events.Items {
			Expect(e.Type).To(Equal(corev1.EventTypeNormal), "%s: %s", e.Reason, e.Note)
		}
	})
})
