package apply

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/gatewaytest"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
)

const twoNumbers = `
containers:
- hostname: game
  image: example.com/game:1
  ports:
  - {name: game, port: 1337, type: publicPort}
  - {name: game-udp, port: 1337, protocol: udp, type: publicPort}
  - {name: admin, port: 1338, type: publicPort}
- hostname: bot
  image: example.com/bot:1
`

var _ = Describe("Where players connect", func() {
	It("stays the same when its Services and routes are deleted or changed by hand", func(ctx context.Context) {
		i := bergtest.StartRunning(ctx, "stays", bergtest.EveryKind)
		in := client.InNamespace(i.Status.Namespace)
		reported, pods := i.Status.Services, uids(ctx, &corev1.PodList{}, in)
		nodePort := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: i.Status.Namespace, Name: "pwn-node-port"}}
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(nodePort), nodePort)).To(Succeed())
		want := nodePorts(nodePort)

		for _, object := range []client.Object{
			nodePort.DeepCopy(),
			&gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: i.Status.Namespace, Name: "web-8080"}},
			&gatewayv1.TLSRoute{ObjectMeta: metav1.ObjectMeta{Namespace: i.Status.Namespace, Name: "web-7000"}},
		} {
			Expect(k8s.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
			old, host := object.GetUID(), object.GetLabels()[bergv1.LabelHostname]
			Expect(k8s.Delete(ctx, object)).To(Succeed())
			expect.Becomes(ctx, object, func(g Gomega) {
				g.Expect(object.GetUID()).NotTo(Equal(old))
			})
			Expect(object.GetLabels()[bergv1.LabelHostname]).To(Equal(host))
		}
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(nodePort), nodePort)).To(Succeed())
		Expect(nodePorts(nodePort)).To(Equal(want))

		By("giving the Service another node port")
		nodePort.Spec.Ports[0].NodePort = freeNodePort(ctx)
		Expect(k8s.Update(ctx, nodePort)).To(Succeed())
		expect.Becomes(ctx, nodePort, func(g Gomega) {
			g.Expect(nodePorts(nodePort)).To(Equal(want))
		})

		expect.Reaches(ctx, i, bergv1.PhaseRunning)
		Expect(i.Status.Services).To(Equal(reported))
		Expect(uids(ctx, &corev1.PodList{}, in)).To(Equal(pods), "pods were restarted")
	})

	Context("while no operator runs", func() {
		It("keeps its node ports and host names", func(ctx context.Context) {
			i := bergtest.StartRunning(ctx, "restart", bergtest.EveryKind)
			in := client.InNamespace(i.Status.Namespace)
			reported, pods := i.Status.Services, uids(ctx, &corev1.PodList{}, in)

			inprocess.Pause()
			nodePort := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: i.Status.Namespace, Name: "pwn-node-port"}}
			route := &gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: i.Status.Namespace, Name: "web-8080"}}
			Expect(k8s.Delete(ctx, nodePort)).To(Succeed())
			Expect(k8s.Delete(ctx, route)).To(Succeed())
			inprocess.Restart(nil, nil)
			for _, object := range []client.Object{nodePort, route} {
				Eventually(func() error { return k8s.Get(ctx, client.ObjectKeyFromObject(object), object) }).Should(Succeed())
			}
			for _, e := range reported {
				if e.Name == "game" {
					Expect(nodePorts(nodePort)).To(HaveKeyWithValue("1337/TCP", e.Port))
				}
				if e.Name == "web" {
					Expect(route.Spec.Hostnames).To(ConsistOf(gatewayv1.Hostname(e.Hostname)))
				}
			}
			expect.Reaches(ctx, i, bergv1.PhaseRunning)
			Expect(i.Status.Services).To(Equal(reported))
			Expect(uids(ctx, &corev1.PodList{}, in)).To(Equal(pods), "pods were restarted")
		})

		It("moves to another node port when another Service takes the old one, and reports it", func(ctx context.Context) {
			i := bergtest.StartRunning(ctx, "taken", twoNumbers)
			ns := i.Namespace
			reported := endpointsOf(i)

			inprocess.Pause()
			takeNodePort(ctx, ns, i, "game-node-port", reported["game"].Port)
			inprocess.Restart(nil, nil)
			expect.Becomes(ctx, i, func(g Gomega) {
				g.Expect(endpointsOf(i)["game"].Port).NotTo(Equal(reported["game"].Port))
			})
			now := endpointsOf(i)
			// The API server gives TCP and UDP of one number one node port.
			Expect(now["game-udp"].Port).To(Equal(now["game"].Port))
			Expect(now["admin"]).To(Equal(reported["admin"]), "a port that was free moved, too")
			expect.Event(ctx, i, corev1.EventTypeWarning, bergv1.ReasonNodePortTaken)
			for _, container := range []string{"game", "bot"} {
				Eventually(func() map[string]string { return bergtest.VariablesOf(ctx, i.Status.Namespace, container) }).
					Should(HaveKeyWithValue("GAME_ENDPOINT", fmt.Sprintf("challenges.example.com:%d", now["game"].Port)))
			}
			expect.Reaches(ctx, i, bergv1.PhaseRunning)
		})

		It("does not restart pods for a port that they do not get", func(ctx context.Context) {
			ns := bergtest.Publish(ctx, "unnamed", `containers: [{hostname: shell, image: "example.com/shell:1", ports: [{port: 22, type: publicPort}]}]`)
			i := bergtest.Running(ctx, ns, "unnamed")
			reported, pods := endpointsOf(i)["shell:22"], uids(ctx, &corev1.PodList{}, client.InNamespace(i.Status.Namespace))

			inprocess.Pause()
			takeNodePort(ctx, ns, i, "shell-node-port", reported.Port)
			inprocess.Restart(nil, nil)
			expect.Event(ctx, i, corev1.EventTypeWarning, bergv1.ReasonNodePortTaken)
			Expect(k8s.Get(ctx, client.ObjectKeyFromObject(i), i)).To(Succeed())
			Expect(endpointsOf(i)["shell:22"].Port).NotTo(Equal(reported.Port))
			var d appsv1.Deployment
			Expect(k8s.Get(ctx, client.ObjectKey{Namespace: i.Status.Namespace, Name: "shell"}, &d)).To(Succeed())
			Expect(d.Generation).To(Equal(int64(1)))
			Expect(uids(ctx, &corev1.PodList{}, client.InNamespace(i.Status.Namespace))).To(Equal(pods))
		})
	})
})

var _ = Describe("Where players connect when ports go", func() {
	const (
		withoutPorts = `containers: [{hostname: game, image: "example.com/game:1"}, {hostname: bot, image: "example.com/bot:1"}]`
		twoPorts     = `containers: [{hostname: game, image: "example.com/game:1", ports: [{name: game, port: 1337, type: publicPort}, {name: admin, port: 1338, type: publicPort}]}]`
		onePort      = `containers: [{hostname: game, image: "example.com/game:1", ports: [{name: game, port: 1337, type: publicPort}]}]`
		routed       = `containers: [{hostname: game, image: "example.com/game:1", ports: [{name: game, port: 1337, type: publicPort}, {name: admin, port: 1338, type: publicTlsRoute}]}]`
	)
	// tells waits until exactly these ports are told, and all of them are to be found.
	tells := func(ctx context.Context, i *bergv1.ChallengeInstance, ports ...any) {
		GinkgoHelper()
		expect.Becomes(ctx, i, func(g Gomega) {
			g.Expect(slices.Sorted(maps.Keys(endpointsOf(i)))).To(HaveExactElements(ports...), expect.Conditions(i))
			found := findable(ctx, g, i)
			for _, e := range i.Status.Services {
				g.Expect(found).To(ContainElement(fmt.Sprintf("%s:%d", e.Hostname, e.Port)), "%s is reported and not there", e.Name)
			}
		})
	}

	It("is nowhere when the Challenge has no ports any more", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		c := bergtest.Challenge(ctx, ns, "closed", twoNumbers)
		i := bergtest.Running(ctx, ns, "closed")
		Expect(i.Status.Services).To(HaveLen(3))

		bergtest.Respecify(ctx, c, withoutPorts)
		bergtest.RollOut(ctx, i, "1")
		expect.Shows(ctx, i, bergv1.ConditionUpToDate, metav1.ConditionTrue, bergv1.ReasonUpToDate)
		Eventually(func(g Gomega) {
			var services corev1.ServiceList
			g.Expect(k8s.List(ctx, &services, client.InNamespace(i.Status.Namespace))).To(Succeed())
			for _, s := range services.Items {
				g.Expect(s.Spec.ClusterIP).To(Equal(corev1.ClusterIPNone), "%s has an address for a port", s.Name)
			}
		}).Should(Succeed())
		tells(ctx, i)
	})

	It("stays the same for the ports that stay, and tells no other", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		c := bergtest.Challenge(ctx, ns, "fewer", twoPorts)
		i := bergtest.Running(ctx, ns, "fewer")
		before := endpointsOf(i)

		bergtest.Respecify(ctx, c, onePort)
		bergtest.RollOut(ctx, i, "1")
		tells(ctx, i, "game")
		Expect(endpointsOf(i)["game"]).To(Equal(before["game"]))
		expect.Shows(ctx, i, bergv1.ConditionUpToDate, metav1.ConditionTrue, bergv1.ReasonUpToDate)
		tells(ctx, i, "game")
	})

	for _, refused := range []struct{ group, resource, condition string }{
		{"cilium.io", "ciliumnetworkpolicies", bergv1.ConditionNetworkPolicyCreated},
		{"", "services", bergv1.ConditionServicesCreated},
		{"apps", "deployments", bergv1.ConditionDeploymentsCreated},
	} {
		It("shows no port that is going, also while "+refused.resource+" are refused", func(ctx context.Context) {
			ns := bergtest.Namespace(ctx)
			c := bergtest.Challenge(ctx, ns, "half-way", twoPorts)
			i := bergtest.Running(ctx, ns, "half-way")

			lift := bergtest.Refuse(ctx, i.Spec.OwnerID, refused.group, refused.resource, "UPDATE")
			bergtest.Respecify(ctx, c, onePort)
			bergtest.RollOut(ctx, i, "1")
			expect.Shows(ctx, i, refused.condition, metav1.ConditionFalse, bergv1.ReasonRefused)
			tells(ctx, i, "game")
			lift()
			expect.Shows(ctx, i, refused.condition, metav1.ConditionTrue, bergv1.ReasonCreated)
			tells(ctx, i, "game")
		})
	}

	It("is nowhere once the instance is being deleted, also while its namespace is held", func(ctx context.Context) {
		i := bergtest.StartRunning(ctx, "held", twoPorts)
		Expect(i.Status.Services).To(HaveLen(2))
		release := bergtest.Hold(ctx, i.Status.Namespace)
		Expect(k8s.Delete(ctx, i)).To(Succeed())
		expect.Shows(ctx, i, bergv1.ConditionNamespaceDeleted, metav1.ConditionFalse, bergv1.ReasonDeletionBlocked)
		Expect(i.Status.Services).To(BeEmpty())
		release()
		bergtest.Gone(ctx, i)
	})

	It("shows no route that is refused, and no node port in its place", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		c := bergtest.Challenge(ctx, ns, "becomes-route", twoPorts)
		i := bergtest.Running(ctx, ns, "becomes-route")

		lift := bergtest.Refuse(ctx, i.Spec.OwnerID, "gateway.networking.k8s.io", "tlsroutes", "CREATE")
		bergtest.Respecify(ctx, c, routed)
		bergtest.RollOut(ctx, i, "1")
		expect.Shows(ctx, i, bergv1.ConditionRoutesCreated, metav1.ConditionFalse, bergv1.ReasonRefused)
		tells(ctx, i, "game")
		lift()
		tells(ctx, i, "admin", "game")
		Expect(endpointsOf(i)["admin"].TLS).To(BeTrue())
	})
})

var _ = Describe("What the API server must accept", func() {
	It("is what a Challenge with a name of 64 characters leads to", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		name := strings.Repeat("long-", 12) + "name"
		Expect(name).To(HaveLen(64))
		bergtest.Challenge(ctx, ns, name, bergtest.OneContainer)
		i := bergtest.Running(ctx, ns, name)
		var namespace corev1.Namespace
		Expect(k8s.Get(ctx, client.ObjectKey{Name: i.Status.Namespace}, &namespace)).To(Succeed())
		Expect(len(namespace.Labels[bergv1.LabelChallenge])).To(BeNumerically("<=", 63))
		Expect(namespace.Annotations).To(HaveKeyWithValue(bergv1.AnnotationChallenge, name))
	})

	It("is what capabilities lead to, below and above the baseline", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		for capability, level := range map[string]string{"SYS_CHROOT": "baseline", "CAP_NET_ADMIN": "privileged"} {
			name := strings.ToLower(strings.ReplaceAll(capability, "_", "-"))
			bergtest.Challenge(ctx, ns, name, `containers: [{hostname: web, image: "example.com/web:1", additionalCapabilities: [`+capability+`]}]`)
			i := bergtest.Running(ctx, ns, name)
			var namespace corev1.Namespace
			Expect(k8s.Get(ctx, client.ObjectKey{Name: i.Status.Namespace}, &namespace)).To(Succeed())
			for _, mode := range []string{"enforce", "warn", "audit"} {
				Expect(namespace.Labels).To(HaveKeyWithValue("pod-security.kubernetes.io/"+mode, level))
			}
		}
	})

	It("is a missing pull secret: the instance runs, and an event tells", func(ctx context.Context) {
		i := bergtest.StartRunning(ctx, "public", bergtest.OneContainer)
		expect.Event(ctx, i, corev1.EventTypeWarning, bergv1.ReasonPullSecretMissing)
	})

	It("is every setting of the operator that shows in an object", func(ctx context.Context) {
		class := &unstructured.Unstructured{Object: map[string]any{"handler": "kata"}}
		class.SetAPIVersion("node.k8s.io/v1")
		class.SetKind("RuntimeClass")
		class.SetName("kata-integration")
		apiserver.Create(ctx, class)
		inprocess.Restart(map[string]string{
			"CHALLENGE_ADDITIONAL_HEADLESS_SERVICE": "true", "CHALLENGE_RUNTIME_CLASS_NAME": "kata-integration",
			"CLUSTER_DOMAIN": "k8s.example", "GATEWAY_DATAPLANE_NAMESPACES": "traefik,envoy", "NETWORK_POLICY": "both",
			"CLUSTER_NODE_CIDRS": "192.0.2.0/24,2001:db8:1::/64", "CLUSTER_POD_CIDRS": "10.244.0.0/16,2001:db8:2::/64",
			"GATEWAY_NAME": "edge", "GATEWAY_NAMESPACE": "infra", "CHALLENGE_HTTP_LISTENER_NAME": "web", "CHALLENGE_HTTP_PORT": "8080",
		}, nil)
		Expect(gatewaytest.Create(ctx, k8s, "infra", "edge", "web", "tls")).To(Succeed())
		i := bergtest.StartRunning(ctx, "settings", bergtest.EveryKind+"allowOutboundTraffic: true\n")

		for _, name := range []string{"web-headless", "pwn-headless", "db-headless"} {
			var s corev1.Service
			Expect(k8s.Get(ctx, client.ObjectKey{Namespace: i.Status.Namespace, Name: name}, &s)).To(Succeed())
			Expect(s.Spec.ClusterIP).To(Equal(corev1.ClusterIPNone))
		}
		var d appsv1.Deployment
		Expect(k8s.Get(ctx, client.ObjectKey{Namespace: i.Status.Namespace, Name: "db"}, &d)).To(Succeed())
		Expect(d.Spec.Template.Spec.RuntimeClassName).To(HaveValue(Equal("kata-integration")))
		var route gatewayv1.HTTPRoute
		Expect(k8s.Get(ctx, client.ObjectKey{Namespace: i.Status.Namespace, Name: "web-8080"}, &route)).To(Succeed())
		parent := route.Spec.ParentRefs[0]
		Expect([]string{string(*parent.Namespace), string(parent.Name), string(*parent.SectionName)}).To(Equal([]string{"infra", "edge", "web"}))
		Expect(endpointsOf(i)["web"].Port).To(Equal(int32(8080)))
	})
})

var _ = Describe("Where players connect by plain HTTP", func() {
	It("is reported without TLS, and a rollout may make a node port of it and a route again", func(ctx context.Context) {
		const (
			routed = `containers: [{hostname: web, image: "example.com/web:1", ports: [{name: web, port: 8080, type: publicHttpRoute}]}]`
			opened = `containers: [{hostname: web, image: "example.com/web:1", ports: [{name: web, port: 8080, type: publicPort, appProtocol: http}]}]`
		)
		inprocess.Restart(map[string]string{"CHALLENGE_HTTP_TLS": "auto", "CHALLENGE_HTTP_PORT": "80"}, nil)
		ns := bergtest.Namespace(ctx)
		c := bergtest.Challenge(ctx, ns, "plain", routed)
		i := bergtest.Running(ctx, ns, "plain")
		reported := endpointsOf(i)["web"]
		Expect(reported.TLS).To(BeFalse())
		Expect(reported.URL).To(Equal("http://" + reported.Hostname))

		bergtest.Respecify(ctx, c, opened)
		bergtest.RollOut(ctx, i, "1")
		expect.Shows(ctx, i, bergv1.ConditionUpToDate, metav1.ConditionTrue, bergv1.ReasonUpToDate)
		expect.Becomes(ctx, i, func(g Gomega) {
			e := endpointsOf(i)["web"]
			g.Expect(e.URL).To(Equal(fmt.Sprintf("http://challenges.example.com:%d", e.Port)))
		})
		nodePort := endpointsOf(i)["web"].Port

		bergtest.Respecify(ctx, c, routed)
		bergtest.RollOut(ctx, i, "2")
		expect.Becomes(ctx, i, func(g Gomega) {
			g.Expect(endpointsOf(i)["web"]).To(Equal(reported), "node port %d before", nodePort)
		})
	})
})

func nodePorts(s *corev1.Service) map[string]int32 {
	out := map[string]int32{}
	for _, p := range s.Spec.Ports {
		out[fmt.Sprintf("%d/%s", p.Port, p.Protocol)] = p.NodePort
	}
	return out
}

func endpointsOf(i *bergv1.ChallengeInstance) map[string]bergv1.ServiceEndpoint {
	out := map[string]bergv1.ServiceEndpoint{}
	for _, e := range i.Status.Services {
		out[e.Name] = e
	}
	return out
}

// findable returns the addresses at which an instance is reached, as its Services
// and routes say.
func findable(ctx context.Context, g Gomega, i *bergv1.ChallengeInstance) []string {
	in := client.InNamespace(i.Status.Namespace)
	var out []string
	var services corev1.ServiceList
	g.Expect(k8s.List(ctx, &services, in)).To(Succeed())
	for _, s := range services.Items {
		for _, p := range s.Spec.Ports {
			if p.NodePort != 0 {
				out = append(out, fmt.Sprintf("%s:%d", cfg.Challenge.Domain, p.NodePort))
			}
		}
	}
	var http gatewayv1.HTTPRouteList
	g.Expect(k8s.List(ctx, &http, in)).To(Succeed())
	for _, r := range http.Items {
		out = append(out, fmt.Sprintf("%s:%d", r.Spec.Hostnames[0], cfg.Challenge.HTTPPort))
	}
	var tls gatewayv1.TLSRouteList
	g.Expect(k8s.List(ctx, &tls, in)).To(Succeed())
	for _, r := range tls.Items {
		out = append(out, fmt.Sprintf("%s:%d", r.Spec.Hostnames[0], cfg.Challenge.TLSPort))
	}
	return out
}

// takeNodePort deletes a Service of an instance and gives its node port to
// another.
func takeNodePort(ctx context.Context, namespace string, i *bergv1.ChallengeInstance, name string, port int32) {
	GinkgoHelper()
	Expect(k8s.Delete(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: i.Status.Namespace, Name: name}})).To(Succeed())
	thief := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "thief"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 1, NodePort: port}}},
	}
	apiserver.Create(ctx, thief)
}

// freeNodePort returns a node port that no Service has.
func freeNodePort(ctx context.Context) int32 {
	GinkgoHelper()
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "free-"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 1}}},
	}
	Expect(k8s.Create(ctx, s)).To(Succeed())
	port := s.Spec.Ports[0].NodePort
	Expect(k8s.Delete(ctx, s)).To(Succeed())
	return port
}
