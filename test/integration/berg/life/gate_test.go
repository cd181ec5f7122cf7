package life

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/gate"
	"github.com/bergctf/berg-operator/internal/kit/gateadmin"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/installed"
)

var _ = Describe("An instance behind the gate", func() {
	const listenerPort = 80
	freePort := func(own netip.Addr) int {
		GinkgoHelper()
		l, err := net.Listen("tcp", netip.AddrPortFrom(own, 0).String())
		Expect(err).NotTo(HaveOccurred())
		defer func() { Expect(l.Close()).To(Succeed()) }()
		return l.Addr().(*net.TCPAddr).Port
	}
	// startGate runs a replica of the gate, and returns the addresses of its listener and of its admin port.
	startGate := func(own netip.Addr) (front string, admin int) {
		GinkgoHelper()
		open, admin := freePort(own), freePort(own)
		config := gate.Config{
			Controller: gateadmin.Controller, Ports: []int32{listenerPort}, PortOffset: open - listenerPort, BindHost: own.String(),
			AdminBindAddress: fmt.Sprintf("%s:%d", own, admin), Namespace: installed.Namespace, Services: []string{"berg-gate"}, Addresses: []string{own.String()},
			Drain: time.Second, MaxConnections: 100, AddressConnections: 100, HostConnections: 100,
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- gate.Run(ctx, apiserver.Config, config) }()
		DeferCleanup(func() {
			cancel()
			Eventually(ended).Should(Receive(BeNil()))
		})
		return fmt.Sprintf("%s:%d", own, open), admin
	}
	// replica tells the operator of a replica that is ready.
	replica := func(ctx context.Context, name string, own netip.Addr, admin int) *discoveryv1.EndpointSlice {
		GinkgoHelper()
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: installed.Namespace, Name: name, Labels: map[string]string{"app.kubernetes.io/name": "berg-gate"}},
			AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: ptr.To("admin"), Port: ptr.To(int32(admin))}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{own.String()}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}},
		}
		apiserver.Create(ctx, slice)
		return slice
	}
	// another replica answers what the spec wants.
	another := func(own netip.Addr) (admin int, answer *atomic.Pointer[gateadmin.Served]) {
		GinkgoHelper()
		answer = &atomic.Pointer[gateadmin.Served]{}
		answer.Store(&gateadmin.Served{})
		listener, err := net.Listen("tcp", netip.AddrPortFrom(own, 0).String())
		Expect(err).NotTo(HaveOccurred())
		server := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(answer.Load()) })}
		go func() { _ = server.Serve(listener) }()
		DeferCleanup(server.Close)
		return listener.Addr().(*net.TCPAddr).Port, answer
	}
	routesMessage := func(i *bergv1.ChallengeInstance) string {
		return meta.FindStatusCondition(i.Status.Conditions, bergv1.ConditionRoutesCreated).Message
	}
	get := func(ctx context.Context, front, host string) (*http.Response, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+front+"/", nil)
		if err != nil {
			return nil, err
		}
		req.Host = host
		req.Header.Set("Accept", "text/html")
		return http.DefaultClient.Do(req)
	}
	read := func(ctx context.Context, front, host string) func() (string, error) {
		return func() (string, error) {
			answer, err := get(ctx, front, host)
			if err != nil {
				return "", err
			}
			defer func() { _ = answer.Body.Close() }()
			body, err := io.ReadAll(answer.Body)
			return fmt.Sprintln(answer.StatusCode, string(body)), err
		}
	}

	It("is Running when each replica serves it and reaches its pod, and says until then which does not", func(ctx context.Context) {
		own := ownAddress()
		ns := apiserver.Namespace(ctx)
		apiserver.Create(ctx, &gatewayv1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: ns}, Spec: gatewayv1.GatewayClassSpec{ControllerName: gateadmin.Controller}})
		g := &gatewayv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "gate"}}
		g.Spec.GatewayClassName = gatewayv1.ObjectName(ns)
		g.Spec.Listeners = []gatewayv1.Listener{{
			Name: "web", Port: listenerPort, Protocol: gatewayv1.HTTPProtocolType,
			AllowedRoutes: &gatewayv1.AllowedRoutes{Namespaces: &gatewayv1.RouteNamespaces{From: ptr.To(gatewayv1.NamespacesFromAll)}},
		}}
		Expect(k8s.Create(ctx, g)).To(Succeed())
		front, admin := startGate(own)
		inprocess.Restart(map[string]string{
			"GATEWAY_NAMESPACE": ns, "GATEWAY_NAME": "gate", "CHALLENGE_HTTP_LISTENER_NAME": "web", "CHALLENGE_CONNECT_TIMEOUT": "30s", "PULL_SECRET_NAME": "",
		}, nil)
		program, err := net.Listen("tcp", netip.AddrPortFrom(own, 0).String())
		Expect(err).NotTo(HaveOccurred())
		pod := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "the program")
			if r.URL.Path == "/hold" {
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			}
		})}
		go func() { _ = pod.Serve(program) }()
		DeferCleanup(pod.Close)
		challenges := bergtest.Namespace(ctx)
		bergtest.Challenge(ctx, challenges, "gated", openPort(program))

		By("a gate without a replica that is ready")
		i := bergtest.Instance(ctx, challenges, "gated")
		expect.Shows(ctx, i, bergv1.ConditionRoutesCreated, metav1.ConditionFalse, bergv1.ReasonGatewayNotReady)
		expect.Becomes(ctx, i, func(g Gomega) { g.Expect(routesMessage(i)).To(ContainSubstring("no replica of the gate")) })
		untilPods(ctx, i, corev1.PodRunning)
		setPods(ctx, i, func(p *corev1.Pod) {
			p.Status.PodIP, p.Status.PodIPs = own.String(), []corev1.PodIP{{IP: own.String()}}
			for n := range p.Status.ContainerStatuses {
				p.Status.ContainerStatuses[n].Started = ptr.To(true)
			}
			becomeReady(p)
		})

		By("a replica that does not serve it yet")
		other, answer := another(own)
		first, second := replica(ctx, "berg-gate-admin-1", own, admin), replica(ctx, "berg-gate-admin-2", own, other)
		expect.Shows(ctx, i, bergv1.ConditionRoutesCreated, metav1.ConditionUnknown, bergv1.ReasonRoutePending)
		Expect(routesMessage(i)).To(And(ContainSubstring(fmt.Sprintf("%s:%d", own, other)), ContainSubstring("does not serve a host")))
		Expect(i.Status.Phase).To(Equal(bergv1.PhaseStarting))

		By("a replica that does not reach its pod")
		answer.Store(&gateadmin.Served{Host: true})
		expect.Shows(ctx, i, bergv1.ConditionRoutesCreated, metav1.ConditionUnknown, bergv1.ReasonPodUnreached)
		Expect(i.Status.Phase).To(Equal(bergv1.PhaseStarting))

		By("replicas that serve it")
		answer.Store(&gateadmin.Served{Host: true, Pod: true})
		expect.Reaches(ctx, i, bergv1.PhaseRunning)
		host := i.Status.Services[0].Hostname
		Expect(read(ctx, front, host)()).To(Equal("200 the program\n"), "the first request")
		Expect(routesMessage(i)).To(ContainSubstring("each replica of the gate"))

		By("a program that crashes")
		up := func(p *corev1.Pod) { becomeReady(p) }
		var running []corev1.ContainerStatus
		Expect(pod.Close()).To(Succeed())
		setPods(ctx, i, func(p *corev1.Pod) {
			running = p.DeepCopy().Status.ContainerStatuses
			for n := range p.Status.Conditions {
				if p.Status.Conditions[n].Type == corev1.PodReady {
					p.Status.Conditions[n].Status = corev1.ConditionFalse
				}
			}
			for n := range p.Status.ContainerStatuses {
				s := &p.Status.ContainerStatuses[n]
				s.Ready, s.RestartCount, s.State = false, 3, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
			}
		})
		Eventually(read(ctx, front, host)).Should(And(HavePrefix("503"), ContainSubstring("a program in it fails"), ContainSubstring(`http-equiv="refresh"`)))
		program, err = net.Listen("tcp", program.Addr().String())
		Expect(err).NotTo(HaveOccurred())
		again := &http.Server{ReadHeaderTimeout: time.Second, Handler: pod.Handler}
		go func() { _ = again.Serve(program) }()
		DeferCleanup(again.Close)
		setPods(ctx, i, func(p *corev1.Pod) { p.Status.ContainerStatuses = running; up(p) })
		Eventually(read(ctx, front, host)).Should(Equal("200 the program\n"))
		Eventually(func(eventually Gomega) {
			route := &gatewayv1.HTTPRoute{}
			key := client.ObjectKey{Namespace: i.Status.Namespace, Name: fmt.Sprintf("web-%d", program.Addr().(*net.TCPAddr).Port)}
			eventually.Expect(k8s.Get(ctx, key, route)).To(Succeed())
			eventually.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(i), i)).To(Succeed())
			eventually.Expect(route.Annotations).To(HaveKeyWithValue(bergv1.AnnotationCause, ""), "cause %q: %s", i.Status.Cause, expect.Conditions(i))
		}).Should(Succeed())

		By("replicas that end, and come back")
		for _, slice := range []*discoveryv1.EndpointSlice{first, second} {
			Expect(k8s.Delete(ctx, slice)).To(Succeed())
		}
		expect.Shows(ctx, i, bergv1.ConditionReady, metav1.ConditionFalse, bergv1.ReasonGatewayNotReady)
		Expect(i.Status.Phase).To(Equal(bergv1.PhaseRunning))
		replica(ctx, "berg-gate-admin-3", own, admin)
		expect.Shows(ctx, i, bergv1.ConditionReady, metav1.ConditionTrue, bergv1.ReasonReady)

		By("an instance that ends with an open connection")
		held, err := get(ctx, front+"/hold?", host)
		Expect(err).NotTo(HaveOccurred())
		defer func() { _ = held.Body.Close() }()
		report := func() (all gateadmin.Report, err error) {
			answer, err := http.Get(fmt.Sprintf("http://%s:%d/usage?after=0", own, admin)) //nolint:noctx // the spec's own server
			if err != nil {
				return all, err
			}
			defer func() { _ = answer.Body.Close() }()
			return all, json.NewDecoder(answer.Body).Decode(&all)
		}
		used, err := report()
		Expect(err).NotTo(HaveOccurred())
		Expect(used.Hosts).To(ContainElement(And(HaveField("ID", gateadmin.ID(host)), HaveField("Open", BeEquivalentTo(1)), HaveField("Bytes", BeNumerically(">", 0)))))
		bergtest.Delete(ctx, i)
		_, err = io.ReadAll(held.Body)
		Expect(err).To(HaveOccurred(), "the connection of a player continues")
		Eventually(read(ctx, front, host)).Should(And(HavePrefix("404"), ContainSubstring("has ended")))
		used, err = report()
		Expect(err).NotTo(HaveOccurred())
		Expect(used.Hosts).NotTo(ContainElement(HaveField("ID", gateadmin.ID(host))))
	})
})
