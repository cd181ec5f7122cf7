package berg

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	slim "github.com/cilium/cilium/pkg/k8s/slim/k8s/apis/meta/v1"
	"github.com/cilium/cilium/pkg/policy/api"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/kit/netpolicy"
	"github.com/bergctf/berg-operator/test/e2e/berg/attack"
	"github.com/bergctf/berg-operator/test/lib/deployed"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/journey"
)

// The hosts outside the cluster's network, as profile network of test/cluster
// has them.
const (
	outsideHost  = "203.0.113.10"
	metadataHost = "169.254.169.254"
	privateHost  = "192.168.77.10"
)

// These need a cluster whose packets are judged: make e2e-network.
var _ = Describe("What players reach", Label("network", "attack"), Serial, func() {
	for _, kind := range []string{"cilium", "kubernetes"} {
		It("is what the documents say, with NETWORK_POLICY="+kind, func(ctx SpecContext) {
			if setting("NETWORK_POLICY") != kind {
				for name, value := range map[string]string{"NETWORK_POLICY": kind, "CLUSTER_NODE_CIDRS": world.NodeAddress + "/32"} {
					withSetting(ctx, name, value)
				}
			}
			stage := journey.NewStage(ctx)
			battlefield := newBattlefield(ctx, stage)
			rows := attack.Matrix()
			expected := func(r attack.Row) attack.Expected {
				if kind == "cilium" {
					return r.Cilium
				}
				return r.Kubernetes
			}

			By("attacking under the policies")
			closed := battlefield.attack(ctx, battlefield.closed, rows)
			open := battlefield.attack(ctx, battlefield.open, rows)
			By("visiting as clients do")
			battlefield.visit(ctx)
			By("attacking without them")
			battlefield.lift(ctx)
			lifted := battlefield.attack(ctx, battlefield.closed, rows)

			var wrong []string
			for i, r := range rows {
				for who, got := range map[bool]string{false: closed[i], true: open[i]} {
					if passes(got) != expected(r).Opens(who) {
						wrong = append(wrong, fmt.Sprintf("%s, outbound %v: %s, want %s", r.Target, who, got, expected(r)))
					}
				}
				// A "no" that is none of the policy's proves nothing.
				if !passes(lifted[i]) {
					wrong = append(wrong, fmt.Sprintf("%s, without the policies: %s", r.Target, lifted[i]))
				}
			}
			AddReportEntry("what the packets say with NETWORK_POLICY="+kind, evidence(rows, closed, open, lifted))
			slices.Sort(wrong)
			Expect(wrong).To(BeEmpty(), strings.Join(wrong, "\n"))
		}, SpecTimeout(2*deployed.SpecLimit))
	}

	It("is no more from a container that may make namespaces", func(ctx SpecContext) {
		prepareNodes(ctx)
		stage := journey.NewStage(ctx)
		battlefield := newBattlefield(ctx, stage)
		container := everyPort()
		container.DynamicFlag, container.Sandbox = nil, bergv1.SandboxNested
		stage.Challenge(ctx, "nested", container)
		nested := stage.Start(ctx, stage.Instance("nested")).ExpectPhase(ctx, 2*deployed.StartLimit, bergv1.PhaseRunning)
		rows := attack.Matrix()
		var wrong []string
		for i, got := range battlefield.attack(ctx, newCombatant(ctx, nested.Status.Namespace), rows) {
			expected := rows[i].Cilium
			if setting("NETWORK_POLICY") == "kubernetes" {
				expected = rows[i].Kubernetes
			}
			if passes(got) != expected.Opens(false) {
				wrong = append(wrong, fmt.Sprintf("%s: %s, want %s", rows[i].Target, got, expected))
			}
		}
		Expect(wrong).To(BeEmpty(), strings.Join(wrong, "\n"))
	}, SpecTimeout(2*deployed.SpecLimit))

	It("includes private networks and the metadata of a cloud only where CHALLENGE_OUTBOUND_PRIVATE says so", func(ctx SpecContext) {
		const name = "CHALLENGE_OUTBOUND_PRIVATE"
		withSetting(ctx, name, "true")
		battlefield := newBattlefield(ctx, journey.NewStage(ctx))
		rows := slices.DeleteFunc(attack.Matrix(), func(r attack.Row) bool { return r.Cilium != attack.NoOne })
		opened := map[string]bool{}
		for i, answer := range battlefield.attack(ctx, battlefield.open, rows) {
			if passes(answer) {
				opened[rows[i].Target] = true
			}
		}
		Expect(opened).To(Equal(map[string]bool{"metadata of a cloud": true, "private network next to the cluster": true}))
	}, SpecTimeout(deployed.SpecLimit))

	It("includes the platform API for namespaces that an administrator names, and not for those that label themselves", func(ctx SpecContext) {
		address := world.InstallPlatformAPI(ctx, nil)[0].Status.PodIP
		stage := journey.NewStage(ctx)
		home := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: stage.Namespace}}
		labels := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"berg.norelect.ch/platform":"true","metrics":"enabled"}}}`))
		Expect(world.Patch(ctx, home, labels)).To(Succeed())
		visitor := stage.Visitor(ctx)
		reached := func(ctx context.Context, port string) (bool, error) {
			out, err := world.ExecIn(ctx, visitor, "", "probe", "tcp/"+net.JoinHostPort(address, port))
			_, answer, _ := strings.Cut(strings.TrimSpace(out.Stdout), "\t")
			return passes(answer), err
		}
		// Cilium gives pods that run already their new identity after a random time of up to 30 seconds; these began with it.
		for _, port := range []string{"8080", "8081"} {
			Consistently(reached).WithContext(ctx).WithArguments(port).WithTimeout(deployed.ReactLimit/4).Should(BeFalse(), "a tenant reaches port %s of the platform API", port)
		}

		By("naming the namespace, as docs/platform-api.md does")
		policy := &networkingv1.NetworkPolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: world.Operator.Namespace, Name: "berg-api-platforms"},
			Spec: networkingv1.NetworkPolicySpec{
				PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": deployed.PlatformAPI}},
				PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
				Ingress: []networkingv1.NetworkPolicyIngressRule{{
					From:  []networkingv1.NetworkPolicyPeer{{NamespaceSelector: netpolicy.InNamespaces(stage.Namespace)}},
					Ports: []networkingv1.NetworkPolicyPort{{Port: ptr.To(intstr.FromString("api"))}},
				}},
			},
		}
		Expect(world.Create(ctx, policy)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(world.Delete(ctx, policy)).To(Succeed()) }, NodeTimeout(deployed.DeleteLimit))
		Eventually(reached).WithContext(ctx).WithArguments("8080").WithTimeout(deployed.StartLimit).Should(BeTrue())
		Expect(reached(ctx, "8081")).To(BeFalse(), "a platform reads the metrics of the API")
	}, SpecTimeout(deployed.SpecLimit))

	It("does not depend on the address that a packet claims to come from", func(ctx SpecContext) {
		stage := journey.NewStage(ctx)
		battlefield := newBattlefield(ctx, stage)
		visitor := stage.Visitor(ctx)
		target := outsideHost + ":9000"
		send := func(payload, source string) {
			GinkgoHelper()
			_, err := world.Exec(ctx, battlefield.open.namespace, "box", payload, "spoof", source, target)
			Expect(err).NotTo(HaveOccurred())
		}
		arrived := func(ctx context.Context) (string, error) {
			out, err := world.ExecIn(ctx, visitor, "", "get", "http://"+outsideHost+"/datagrams")
			return out.Stdout, err
		}
		send("claims to be the other instance "+stage.Namespace, battlefield.places.OtherPod)
		send("claims to be the internet "+stage.Namespace, "198.51.100.7")
		// Sent last, so that those before it have had their time.
		send("is what it is "+stage.Namespace, battlefield.open.address)
		expect.Until(ctx, deployed.ReactLimit, func(ctx context.Context) error {
			datagrams, err := arrived(ctx)
			if err != nil {
				return err
			}
			return deployed.ErrorIf(!strings.Contains(datagrams, "is what it is "+stage.Namespace), "an honest datagram does not arrive")
		})
		Expect(arrived(ctx)).NotTo(ContainSubstring("claims to be"))
	}, SpecTimeout(deployed.SpecLimit))

	It("does not include secrets of the cluster, nor the flag that only a program tells", func(ctx SpecContext) {
		const program = "/opt/get_flag"
		stage := journey.NewStage(ctx)
		container := journey.Toolbox("box")
		container.DynamicFlag = &bergv1.DynamicFlag{Executable: &bergv1.FlagFile{Path: program}}
		stage.Challenge(ctx, "executable", container)
		reported := stage.Start(ctx, stage.Instance("executable"))
		namespace := reported.ExpectPhase(ctx, deployed.StartLimit, bergv1.PhaseRunning).Status.Namespace
		for _, path := range []string{"/var/run/secrets", "/run/secrets"} {
			_, err := world.Exec(ctx, namespace, "box", "", "ls", path)
			Expect(err).To(MatchError(ContainSubstring("no such file or directory")), path)
		}
		Expect(world.Run(ctx, namespace, "box", "id")).To(HavePrefix("uid=0 "))
		_, err := world.Exec(ctx, namespace, "box", "", "cat", program)
		Expect(err).To(MatchError(ContainSubstring("permission denied")))
		Expect(world.Run(ctx, namespace, "box", "run", program)).To(Equal(reported.Flag))
	}, SpecTimeout(deployed.SpecLimit))

	It("does not include the node through a privileged pod, whichever account creates one", func(ctx SpecContext) {
		stage := journey.NewStage(ctx)
		namespace := stage.RunToolbox(ctx).InstanceNamespace()
		for where, refusal := range map[string]string{
			namespace: `violates PodSecurity "baseline:`, world.Operator.Namespace: "must satisfy the Pod Security level baseline",
		} {
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: "privileged", Namespace: where},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "toolbox", Image: deployed.ToolboxImage, SecurityContext: &corev1.SecurityContext{Privileged: ptr.To(true)},
				}}},
			}
			err := world.Create(ctx, pod, client.DryRunAll)
			Expect(err).To(MatchError(ContainSubstring(refusal)), where)
		}
	}, SpecTimeout(deployed.SpecLimit))
})

var _ = Describe("What instances need", Label("network"), Serial, func() {
	It("is each other, by host name, whichever C library they were built with", func(ctx SpecContext) {
		stage := journey.NewStage(ctx)
		asker := journey.Toolbox("asker")
		asker.Image = strings.Replace(deployed.ToolboxImage, "/toolbox:", "/resolvers:", 1)
		asked := everyPort()
		asked.DynamicFlag = nil
		stage.Challenge(ctx, "names", asker, asked)
		reported := stage.Start(ctx, stage.Instance("names"))
		namespace := reported.ExpectPhase(ctx, deployed.StartLimit, bergv1.PhaseRunning).Status.Namespace
		want := serviceAddress(ctx, namespace, "box") + "\n"
		for _, resolver := range []string{"resolve-glibc", "resolve-musl"} {
			for _, name := range []string{"box", "box." + namespace + ".svc.cluster.local."} {
				Expect(world.Run(ctx, namespace, "asker", resolver, name)).To(Equal(want), "%s %s", resolver, name)
			}
			_, err := world.Exec(ctx, namespace, "asker", "", resolver, "www.example.org.")
			Expect(err).To(HaveOccurred(), "%s finds a name outside", resolver)
		}
		expect.Until(ctx, deployed.ReactLimit, func(ctx context.Context) error {
			out, err := world.Exec(ctx, namespace, "asker", "", "probe", "tcp/box:8080", "udp/box:9000")
			if err != nil {
				return err
			}
			return deployed.ErrorIf(strings.Count(out.Stdout, "\treached\n") != 2, out.Stdout)
		})
	}, SpecTimeout(deployed.SpecLimit))
})

// battlefield is three instances: one attacks without outbound traffic, one with
// it, and one is attacked.
type battlefield struct {
	closed, open, other combatant
	places              attack.Places
	// site, tcp and udp are public endpoints of the attacked.
	site, tcp, udp bergv1.ServiceEndpoint
}

type combatant struct {
	namespace, address, service string
}

func newBattlefield(ctx context.Context, s *journey.Stage) *battlefield {
	GinkgoHelper()
	container := func() bergv1.Container {
		c := everyPort()
		c.DynamicFlag = nil
		return c
	}
	s.Challenge(ctx, "closed", container())
	outbound := &bergv1.Challenge{
		ObjectMeta: metav1.ObjectMeta{Name: "open", Namespace: s.Namespace},
		Spec:       bergv1.ChallengeSpec{AllowOutboundTraffic: true, Containers: []bergv1.Container{container()}},
	}
	Expect(world.Create(ctx, outbound)).To(Succeed())
	reported := []*journey.Story{s.Start(ctx, s.Instance("closed")), s.Start(ctx, s.Instance("open")), s.Start(ctx, s.Instance("closed"))}
	var who [3]combatant
	var attacked *bergv1.ChallengeInstance
	for i, t := range reported {
		attacked = t.ExpectPhase(ctx, 2*deployed.StartLimit, bergv1.PhaseRunning)
		who[i] = newCombatant(ctx, attacked.Status.Namespace)
	}
	b := &battlefield{
		closed: who[0], open: who[1], other: who[2],
		site: endpoint(attacked, "web"), tcp: endpoint(attacked, "echo"), udp: endpoint(attacked, "echo-datagrams"),
	}
	operator, err := world.OperatorPods(ctx)
	Expect(err).NotTo(HaveOccurred())
	b.places = attack.Places{
		Node:              world.NodeAddress,
		DNS:               serviceAddress(ctx, "kube-system", "kube-dns"),
		API:               serviceAddress(ctx, "default", "kubernetes"),
		Other:             b.other.namespace,
		OtherPod:          b.other.address,
		OtherService:      b.other.service,
		OtherNodePort:     strconv.Itoa(int(b.tcp.Port)),
		OtherDatagramPort: strconv.Itoa(int(b.udp.Port)),
		Operator:          operator[0].Status.PodIP,
		Platform:          world.InstallPlatformAPI(ctx, nil)[0].Status.PodIP,
		PlatformService:   serviceAddress(ctx, world.Operator.Namespace, deployed.PlatformAPI),
		Visitor:           startServer(ctx, s),
		DNSPod:            podAddress(ctx, "kube-system", client.MatchingLabels{"k8s-app": "kube-dns"}),
		Outside:           outsideHost,
		Metadata:          metadataHost,
		Private:           privateHost,
		Domain:            setting("CHALLENGE_DOMAIN"),
	}
	return b
}

func newCombatant(ctx context.Context, namespace string) combatant {
	GinkgoHelper()
	return combatant{
		namespace: namespace,
		address:   podAddress(ctx, namespace, client.MatchingLabels{bergv1.LabelContainer: "box"}),
		service:   serviceAddress(ctx, namespace, "box"),
	}
}

// attack tries all ways concurrently and returns what each answered.
func (b *battlefield) attack(ctx context.Context, from combatant, rows []attack.Row) []string {
	GinkgoHelper()
	places := b.places
	places.Own, places.OwnPod, places.OwnService = from.namespace, from.address, from.service
	command := []string{"probe"}
	for _, r := range rows {
		command = append(command, r.Probe(places))
	}
	out, err := world.Exec(ctx, from.namespace, "box", "", command...)
	Expect(err).NotTo(HaveOccurred())
	var answers []string
	for line := range strings.Lines(out.Stdout) {
		_, answer, _ := strings.Cut(strings.TrimSpace(line), "\t")
		answers = append(answers, answer)
	}
	Expect(answers).To(HaveLen(len(rows)), out.Stdout)
	return answers
}

// visit reaches what is public: policies that keep everyone out are no use.
func (b *battlefield) visit(ctx context.Context) {
	GinkgoHelper()
	expect.Until(ctx, deployed.ReactLimit, func(ctx context.Context) error { return visit(ctx, b.site, http.StatusOK) })
	expect.Until(ctx, deployed.ReactLimit, func(ctx context.Context) error { return echo(ctx, "tcp", world.AtNode(b.tcp.Port)) })
	expect.Until(ctx, deployed.ReactLimit, func(ctx context.Context) error { return echo(ctx, "udp", world.AtNode(b.udp.Port)) })
}

// evidence is what each probe was answered, as a table.
func evidence(rows []attack.Row, closed, open, lifted []string) string {
	var b strings.Builder
	b.WriteString("| to | closed | with outbound traffic | policies lifted |\n| --- | --- | --- | --- |\n")
	for i, r := range rows {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", r.Target, closed[i], open[i], lifted[i])
	}
	return b.String()
}

// passes tells whether a packet came there and one came back. What is refused
// by DNS was refused by the policy: the cluster's resolver answers every name.
func passes(answer string) bool {
	return slices.Contains([]string{"reached", "refused", "NOERROR", "NXDOMAIN"}, answer)
}

// lift allows everything from the attacker and to the attacked, of which the
// operator is one, with a policy of its own. Policies add up, so none need go.
func (b *battlefield) lift(ctx context.Context) {
	GinkgoHelper()
	everybody := api.EntitySlice{api.EntityAll}
	for _, namespace := range []string{b.closed.namespace, b.other.namespace, world.Operator.Namespace} {
		policy := &ciliumv2.CiliumNetworkPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: "lifted", Namespace: namespace},
			Spec: &api.Rule{
				EndpointSelector: api.EndpointSelector{LabelSelector: &slim.LabelSelector{}},
				Egress: []api.EgressRule{
					{EgressCommonRule: api.EgressCommonRule{ToEntities: everybody}},
					// A rule about names yields to another about names only.
					{
						EgressCommonRule: api.EgressCommonRule{ToEntities: everybody},
						ToPorts: api.PortRules{{
							Ports: []api.PortProtocol{{Port: "53", Protocol: api.ProtoAny}},
							Rules: &api.L7Rules{DNS: []api.PortRuleDNS{{MatchPattern: "*"}}},
						}},
					},
				},
				Ingress: []api.IngressRule{{IngressCommonRule: api.IngressCommonRule{FromEntities: everybody}}},
			},
		}
		Expect(world.Create(ctx, policy)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			Expect(client.IgnoreNotFound(world.Delete(ctx, policy))).To(Succeed())
		}, NodeTimeout(deployed.ReactLimit))
	}
	expect.Until(ctx, deployed.ReactLimit, func(ctx context.Context) error {
		out, err := world.Exec(ctx, b.closed.namespace, "box", "", "probe", "tcp/"+outsideHost+":80")
		if err != nil {
			return err
		}
		return deployed.ErrorIf(!strings.Contains(out.Stdout, "\treached"), "the policies are not lifted yet")
	})
}

// startServer starts a pod outside every instance that answers, and returns its
// address.
func startServer(ctx context.Context, s *journey.Stage) string {
	GinkgoHelper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "server", Namespace: s.Namespace},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name: "toolbox", Image: deployed.ToolboxImage, ImagePullPolicy: corev1.PullIfNotPresent,
				Env: []corev1.EnvVar{{Name: "TOOLBOX_HTTP", Value: ":8080"}},
			}},
			TerminationGracePeriodSeconds: new(int64),
		},
	}
	Expect(world.Create(ctx, pod)).To(Succeed())
	expect.Refreshed(ctx, deployed.StartLimit, pod, func() error {
		return deployed.ErrorIf(!deployed.PodReady(pod), "the server's pod is not ready")
	})
	return pod.Status.PodIP
}

func podAddress(ctx context.Context, namespace string, labels client.MatchingLabels) string {
	GinkgoHelper()
	pods, err := world.Pods(ctx, namespace, labels)
	Expect(err).NotTo(HaveOccurred())
	Expect(pods).NotTo(BeEmpty(), "pods of %s with %v", namespace, labels)
	return pods[0].Status.PodIP
}

func serviceAddress(ctx context.Context, namespace, name string) string {
	GinkgoHelper()
	service := &corev1.Service{}
	Expect(world.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, service)).To(Succeed())
	return service.Spec.ClusterIP
}
