package berg

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/deployed"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/journey"
	"github.com/bergctf/berg-operator/test/samples/images/solve"
)

// webImage is an image with a USER, and the programs of the toolbox.
var webImage = strings.Replace(deployed.ToolboxImage, "/toolbox:", "/web:", 1)

// otherUser is some user of a container who is not root.
const otherUser = "1000"

var _ = Describe("A web challenge", Label("versions"), func() {
	It("comes up with its flag in a file and is solved over HTTP", func(ctx SpecContext) {
		stage := journey.NewStage(ctx)
		stage.Sample(ctx, "web")
		reported := stage.Start(ctx, stage.Instance("web"))
		running := reported.ExpectPhase(ctx, deployed.StartLimit, bergv1.PhaseRunning)

		By("telling the truth in its status")
		Expect(running.Status.Namespace).To(Equal(reported.InstanceNamespace()))
		Expect(running.Status.InstanceID).To(MatchRegexp(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`), "a UUID of version 7")
		Expect(running.Status.ObservedGeneration).To(Equal(running.Generation))
		Expect(running.Status.ReadyAt).NotTo(BeNil())
		Expect(running.Status.ExpiresAt.Time).To(BeTemporally("==", running.Status.StartedAt.Add(20*time.Minute)))
		expect.Until(ctx, deployed.ReactLimit, func(context.Context) error { return journey.Unhappy(reported.Now()) })
		expectInOrder(reported.Phases(), bergv1.PhasePending, bergv1.PhaseCreating, bergv1.PhaseStarting, bergv1.PhaseRunning)

		By("holding the flag in the file that the Challenge names")
		namespace := running.Status.Namespace
		Expect(world.Run(ctx, namespace, "web", "cat", "/flag.txt")).To(Equal(reported.Flag + "\n"))
		Expect(world.Run(ctx, namespace, "web", "ls", "/flag.txt")).To(HavePrefix("- 0444 "))

		By("answering other pods under the name of its Service")
		visitor := stage.Visitor(ctx)
		out, err := world.ExecIn(ctx, visitor, "", "get", "http://web."+namespace+".svc:8080/healthz")
		Expect(err).NotTo(HaveOccurred())
		Expect(out.Stdout).To(Equal("ok\n"))

		By("giving its flag to a player")
		site := "http://" + world.ForwardContainer(ctx, namespace, "web", 8080)
		Expect(solve.Web(ctx, http.DefaultClient, site, "/flag.txt")).To(Equal(reported.Flag))

		By("having a route at the gateway")
		route := &gatewayv1.HTTPRoute{}
		Expect(world.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "web-8080"}, route)).To(Succeed())
		host := route.Labels[bergv1.LabelHostname] + "." + setting("CHALLENGE_DOMAIN")
		Expect(route.Spec.Hostnames).To(ConsistOf(gatewayv1.Hostname(host)))
		Expect(route.Spec.ParentRefs).To(HaveLen(1))
		parent := route.Spec.ParentRefs[0]
		Expect(string(parent.Name)).To(Equal(setting("GATEWAY_NAME")))
		Expect(string(ptr.Deref(parent.Namespace, ""))).To(Equal(setting("GATEWAY_NAMESPACE")))
		Expect(string(ptr.Deref(parent.SectionName, ""))).To(Equal(setting("CHALLENGE_HTTP_LISTENER_NAME")))
		backend := route.Spec.Rules[0].BackendRefs[0]
		Expect(string(backend.Name)).To(Equal("web"))
		Expect(ptr.Deref(backend.Port, 0)).To(BeEquivalentTo(8080))

		Expect(running.Status.Services).To(ConsistOf(bergv1.ServiceEndpoint{
			Name: "web", Hostname: host, Port: settingNumber("CHALLENGE_HTTP_PORT"),
			Protocol: "TCP", AppProtocol: "http", TLS: usesHTTPS(), URL: webAddress(host),
		}))

		By("announcing itself in events")
		expectEvents(ctx, reported, bergv1.ReasonInstanceCreating, bergv1.ReasonInstanceReady)
	}, SpecTimeout(deployed.SpecLimit))

	It("finds its Challenge in the operator's namespace of Challenges when it names none", func(ctx SpecContext) {
		stage := journey.NewStage(ctx)
		challenges := &corev1.Namespace{}
		challenges.Name = setting("CHALLENGE_NAMESPACE")
		if err := world.Create(ctx, challenges); err == nil {
			DeferCleanup(func(ctx SpecContext) {
				Expect(world.Delete(ctx, challenges)).To(Succeed())
				expect.Until(ctx, deployed.DeleteLimit, func(ctx context.Context) error { return world.NamespaceGone(ctx, challenges.Name) })
			}, NodeTimeout(deployed.DeleteLimit))
		} else {
			Expect(client.IgnoreAlreadyExists(err)).To(Succeed())
		}
		// The name of the stage keeps this Challenge apart from those of others.
		challenge := &bergv1.Challenge{Spec: bergv1.ChallengeSpec{Containers: []bergv1.Container{journey.Toolbox("box")}}}
		challenge.Name, challenge.Namespace = stage.Namespace, challenges.Name
		Expect(world.Create(ctx, challenge)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(world.Delete(ctx, challenge)).To(Succeed()) }, NodeTimeout(deployed.ReactLimit))

		instance := stage.Instance(challenge.Name)
		instance.Namespace, instance.Spec.ChallengeRef.Namespace = challenges.Name, ""
		stage.Start(ctx, instance).ExpectPhase(ctx, deployed.StartLimit, bergv1.PhaseRunning)
		Expect(world.Delete(ctx, instance)).To(Succeed())
		expect.GoneWithin(ctx, instance, deployed.DeleteLimit) // the stage waits for the instances of its own namespace only
	}, SpecTimeout(deployed.SpecLimit))
})

var _ = Describe("A pwn challenge", Label("versions"), func() {
	It("is solved at a node's port", func(ctx SpecContext) {
		stage := journey.NewStage(ctx)
		stage.Sample(ctx, "pwn")
		reported := stage.Start(ctx, stage.Instance("pwn"))
		running := reported.ExpectPhase(ctx, deployed.StartLimit, bergv1.PhaseRunning)

		Expect(running.Status.Services).To(HaveLen(1))
		service := running.Status.Services[0]
		Expect(service.Name).To(Equal("kiosk"))
		Expect(service.Hostname).To(Equal(setting("CHALLENGE_DOMAIN")))
		Expect(service.TLS).To(BeFalse())
		expect.Until(ctx, deployed.ReactLimit, func(ctx context.Context) error {
			// kube-proxy learns of the pod's readiness independently of us.
			attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			flag, err := solve.Pwn(attempt, world.AtNode(service.Port))
			if err != nil {
				return err
			}
			return deployed.ErrorIf(flag != reported.Flag, "the kiosk sold another flag than this instance's")
		})
	}, SpecTimeout(deployed.SpecLimit))

	It("shows its flag to the members of a group alone", func(ctx SpecContext) {
		const file, group = "/home/ctf/flag.txt", 2000
		stage := journey.NewStage(ctx)
		flag := &bergv1.DynamicFlag{Content: &bergv1.FlagFile{Path: file, Group: ptr.To[int64](group)}}
		box, site := journey.Toolbox("box"), journey.Toolbox("site")
		box.DynamicFlag, site.DynamicFlag = flag, flag
		site.Image, site.Environment = webImage, nil // which has a USER of its own
		stage.Challenge(ctx, "group", box, site)
		reported := stage.Start(ctx, stage.Instance("group"))
		namespace := reported.ExpectPhase(ctx, deployed.StartLimit, bergv1.PhaseRunning).Status.Namespace

		Expect(world.Run(ctx, namespace, "box", "ls", file)).To(HavePrefix("- 0440 0:2000 "))
		Expect(world.Run(ctx, namespace, "site", "id")).To(HavePrefix("uid=65532 "), "the container was to run as another user than root")
		Expect(world.Run(ctx, namespace, "site", "cat", file)).To(Equal(reported.Flag + "\n"))

		By("refusing a user who is no member")
		out, err := world.Exec(ctx, namespace, "box", "", "run", "-user", otherUser, "/usr/bin/cat", file)
		Expect(err).To(MatchError(ContainSubstring("permission denied")))
		Expect(out.Stdout).To(BeEmpty())
	})

	It("prints its flag when the program runs, and shows it to no player who reads the file", func(ctx SpecContext) {
		const program = "/opt/get_flag"
		stage := journey.NewStage(ctx)
		container := journey.Toolbox("box")
		container.DynamicFlag = &bergv1.DynamicFlag{Executable: &bergv1.FlagFile{Path: program}}
		stage.Challenge(ctx, "executable", container)
		reported := stage.Start(ctx, stage.Instance("executable"))
		namespace := reported.ExpectPhase(ctx, deployed.StartLimit, bergv1.PhaseRunning).Status.Namespace

		Expect(world.Run(ctx, namespace, "box", "id")).To(HavePrefix("uid=0 "), "the container was to run as root")
		Expect(world.Run(ctx, namespace, "box", "ls", program)).To(HavePrefix("- 0111 0:0 "))
		Expect(world.Run(ctx, namespace, "box", "run", program)).To(Equal(reported.Flag))
		Expect(world.Run(ctx, namespace, "box", "run", "-user", otherUser, program)).To(Equal(reported.Flag))

		By("refusing to be read, even by root")
		for _, read := range [][]string{
			{"cat", program},
			{"run", "-user", otherUser, "/usr/bin/cat", program},
		} {
			out, err := world.Exec(ctx, namespace, "box", "", read...)
			Expect(err).To(MatchError(ContainSubstring("permission denied")), "%v", read)
			Expect(out.Stdout).To(BeEmpty(), "%v", read)
		}
		for name, set := range capabilities(world.Run(ctx, namespace, "box", "cat", "/proc/self/status")) {
			Expect(set&(1<<capDACOverride)).To(BeZero(), "%s holds CAP_DAC_OVERRIDE", name)
		}
	}, SpecTimeout(deployed.SpecLimit))

	It("serves TCP and UDP on one number at the nodes", func(ctx SpecContext) {
		stage := journey.NewStage(ctx)
		stage.Challenge(ctx, "ports", everyPort())
		reported := stage.Start(ctx, stage.Instance("ports"))
		running := reported.ExpectPhase(ctx, deployed.StartLimit, bergv1.PhaseRunning)

		Expect(endpoint(running, "echo").Protocol).To(Equal("TCP"))
		Expect(endpoint(running, "echo-datagrams").Protocol).To(Equal("UDP"))
		Expect(endpoint(running, "secure").TLS).To(BeTrue())
		Expect(endpoint(running, "secure").Port).To(Equal(settingNumber("CHALLENGE_TLS_PORT")))
		Expect(running.Status.Services).To(HaveLen(4), "an entry for each port that is not internal")

		for network, name := range map[string]string{"tcp": "echo", "udp": "echo-datagrams"} {
			address := world.AtNode(endpoint(running, name).Port)
			expect.Until(ctx, deployed.ReactLimit, func(ctx context.Context) error { return echo(ctx, network, address) })
		}
	}, SpecTimeout(deployed.SpecLimit))
})

var _ = Describe("A challenge of three containers", Label("versions"), func() {
	It("connects them, tells each where the others are, and gives the flag to one", func(ctx SpecContext) {
		stage := journey.NewStage(ctx)
		stage.Sample(ctx, "shop")
		reported := stage.Start(ctx, stage.Instance("shop"))
		running := reported.ExpectPhase(ctx, deployed.StartLimit, bergv1.PhaseRunning)
		namespace := running.Status.Namespace

		shop := endpoint(running, "shop")
		for _, container := range []string{"web", "database", "bot"} {
			environment := strings.Split(strings.TrimSpace(world.Run(ctx, namespace, container, "printenv")), "\n")
			Expect(environment).To(ContainElements(
				"CHALLENGE_NAMESPACE="+namespace,
				"DATABASE_ENDPOINT=database:5555",
				"STOREFRONT_ENDPOINT=web:8000",
				fmt.Sprintf("SHOP_ENDPOINT=%s:%d", shop.Hostname, shop.Port),
			), "environment of %s", container)
			holdsFlag := slices.Contains(environment, "FLAG="+reported.Flag)
			Expect(holdsFlag).To(Equal(container == "bot"), "%s holds the flag: %v", container, holdsFlag)
			// Kubernetes announces its own Service in any case.
			Expect(environment).NotTo(ContainElement(HavePrefix("DATABASE_SERVICE_HOST=")), "environment of %s", container)
		}

		By("finding each other by name")
		service := &corev1.Service{}
		Expect(world.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "database"}, service)).To(Succeed())
		Expect(world.Run(ctx, namespace, "web", "lookup", "database")).To(Equal(service.Spec.ClusterIP + "\n"))
		out, err := world.Exec(ctx, namespace, "bot", "ALL nothing\n", "tcp", "database:5555")
		Expect(err).NotTo(HaveOccurred())
		Expect(out.Stdout).To(Equal("OK\n"))

		By("giving the flag to a player")
		site := "http://" + world.ForwardContainer(ctx, namespace, "web", 8080)
		attempt, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		Expect(solve.Shop(attempt, http.DefaultClient, site)).To(Equal(reported.Flag))
	}, SpecTimeout(deployed.SpecLimit))
})

// capDACOverride is the number of the capability in linux/capability.h.
const capDACOverride = 1

// capabilities returns the capability sets in a process's status.
func capabilities(status string) map[string]uint64 {
	GinkgoHelper()
	sets := map[string]uint64{}
	for line := range strings.Lines(status) {
		if name, value, found := strings.Cut(line, ":"); found && strings.HasPrefix(name, "Cap") {
			set, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
			Expect(err).NotTo(HaveOccurred())
			sets[name] = set
		}
	}
	Expect(sets).To(HaveKey("CapEff"))
	Expect(sets).To(HaveKey("CapBnd"))
	return sets
}

// setting returns a variable of the operator.
func setting(name string) string {
	GinkgoHelper()
	value, err := world.Setting(name)
	Expect(err).NotTo(HaveOccurred())
	return value
}

// withSetting gives the operator a variable until the spec ends.
func withSetting(ctx context.Context, name, value string) {
	GinkgoHelper()
	before := setting(name)
	DeferCleanup(func(ctx SpecContext) { deployed.SetVariable(ctx, name, before) }, NodeTimeout(2*deployed.StartLimit))
	deployed.SetVariable(ctx, name, value)
}

func settingNumber(name string) int32 {
	GinkgoHelper()
	value, err := world.Number(name)
	Expect(err).NotTo(HaveOccurred())
	return value
}

// endpoint returns the entry of status.services with that name.
func endpoint(instance *bergv1.ChallengeInstance, name string) bergv1.ServiceEndpoint {
	GinkgoHelper()
	i := slices.IndexFunc(instance.Status.Services, func(s bergv1.ServiceEndpoint) bool { return s.Name == name })
	Expect(i).To(BeNumerically(">=", 0), "status.services has no %s: %v", name, instance.Status.Services)
	return instance.Status.Services[i]
}

// usesHTTPS reports whether players use HTTPS at the Gateway's listener for HTTPRoutes.
func usesHTTPS() bool {
	return setting("CHALLENGE_HTTP_TLS") != "false" && setting("CHALLENGE_HTTP_PORT") != "80"
}

// webAddress is where a browser goes, as the settings have it.
func webAddress(host string) string {
	GinkgoHelper()
	scheme, own := "https", "443"
	if !usesHTTPS() {
		scheme, own = "http", "80"
	}
	if port := setting("CHALLENGE_HTTP_PORT"); port != own {
		host = net.JoinHostPort(host, port)
	}
	return scheme + "://" + host
}

// expectInOrder checks that the phases came in this order, that the last one is
// there, and that no other came. A watcher may miss one that did not last.
func expectInOrder(reported []bergv1.Phase, order ...bergv1.Phase) {
	GinkgoHelper()
	next := 0
	for _, p := range reported {
		i := slices.Index(order[next:], p)
		Expect(i).To(BeNumerically(">=", 0), "phase %s is out of place in %v", p, reported)
		next += i
	}
	Expect(reported).NotTo(BeEmpty())
	Expect(reported[len(reported)-1]).To(Equal(order[len(order)-1]))
}

// expectEvents waits for events about the instance.
func expectEvents(ctx context.Context, reported *journey.Story, reasons ...string) {
	GinkgoHelper()
	expect.Until(ctx, deployed.ReactLimit, func(ctx context.Context) error {
		events, err := instanceEvents(ctx, reported)
		if err != nil {
			return err
		}
		for _, reason := range reasons {
			if !slices.ContainsFunc(events, func(e corev1.Event) bool { return e.Reason == reason }) {
				return fmt.Errorf("%s has no event %s", reported.Key, reason)
			}
		}
		return nil
	})
}

func instanceEvents(ctx context.Context, reported *journey.Story) ([]corev1.Event, error) {
	var events corev1.EventList
	if err := world.List(ctx, &events, client.InNamespace(reported.Key.Namespace)); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(events.Items, func(e corev1.Event) bool {
		return e.InvolvedObject.Kind != "ChallengeInstance" || e.InvolvedObject.Name != reported.Key.Name
	}), nil
}

// echo sends a line and expects it back.
func echo(ctx context.Context, network, address string) error {
	const line = "is a server there?\n"
	connection, err := (&net.Dialer{Timeout: 2 * time.Second}).DialContext(ctx, network, address)
	if err != nil {
		return err
	}
	defer connection.Close()
	if err := connection.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
		return err
	}
	if _, err := io.WriteString(connection, line); err != nil {
		return err
	}
	answer := make([]byte, len(line))
	if _, err := io.ReadFull(connection, answer); err != nil {
		return fmt.Errorf("%s %s: %w", network, address, err)
	}
	return deployed.ErrorIf(string(answer) != line, fmt.Sprintf("%s %s answered %q", network, address, answer))
}
