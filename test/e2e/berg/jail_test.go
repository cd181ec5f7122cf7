package berg

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/e2e/berg/attack"
	"github.com/bergctf/berg-operator/test/lib/deployed"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/journey"
)

// jailImage is a service that locks each player into a jail: test/samples/images/jail.
var jailImage = strings.Replace(deployed.ToolboxImage, "/toolbox:", "/jail:", 1)

const (
	seccompNamespace = "berg-seccomp"
	nestedProfile    = "berg-nested.json"
	jailFlag         = "/flag.txt"
)

// jails are the ways to make one: which program does, and as which user of the container.
var jails = []struct{ hostname, program, user string }{
	{"bubblewrap", "bubblewrap", "0"},
	{"bubblewrap-user", "bubblewrap", otherUser},
	{"own", "own", "0"},
	{"own-user", "own", otherUser},
}

var _ = Describe("Challenges that are jails", Label("jails"), Serial, func() {
	It("run as root and as a user without capabilities, and keep their players in", Label("attack"), func(ctx SpecContext) {
		prepareNodes(ctx)
		stage := journey.NewStage(ctx)

		By("being accepted, and played")
		challenge := stage.Challenge(ctx, "jails", jailContainers(bergv1.SandboxNested)...)
		expect.Refreshed(ctx, deployed.ReactLimit, challenge, func() error {
			return deployed.ErrorIf(!meta.IsStatusConditionTrue(challenge.Status.Conditions, bergv1.ChallengeConditionAccepted), expect.Conditions(challenge))
		})
		reported := stage.Start(ctx, stage.Instance("jails"))
		running := reported.ExpectPhase(ctx, 2*deployed.StartLimit, bergv1.PhaseRunning)
		namespace := running.Status.Namespace
		var seen strings.Builder
		for _, j := range jails {
			player := enter(ctx, endpoint(running, j.hostname).Port)
			Expect(player.ask("flag")).To(Equal(reported.Flag), j.hostname)

			inside, container := place{}, place{}
			Expect(json.Unmarshal([]byte(player.ask("report")), &inside)).To(Succeed(), j.hostname)
			Expect(json.Unmarshal([]byte(world.Run(ctx, namespace, j.hostname, "jail", "report")), &container)).To(Succeed(), j.hostname)
			Expect(inside.UID).To(BeZero(), j.hostname)
			Expect(inside.Hostname).To(Equal("jail"), j.hostname)
			Expect(inside.Interfaces).To(ConsistOf("lo"), j.hostname)
			Expect(inside.PID).To(BeNumerically("<=", 2), j.hostname)
			Expect(inside.Processes).To(BeNumerically("<=", 2), "%s: /proc shows others", j.hostname)
			Expect(inside.Folders).NotTo(ContainElement("old"), j.hostname)
			for _, kind := range []string{"user", "pid", "mnt", "net", "ipc", "uts"} {
				Expect(inside.Namespaces[kind]).NotTo(Equal(container.Namespaces[kind]), "%s shares its namespace %s with the container", j.hostname, kind)
			}

			By("giving nothing of the node to root in the jail of " + j.hostname + ", and in the container")
			attempts := make([]string, 0, len(attack.Seizures()))
			for _, s := range attack.Seizures() {
				attempts = append(attempts, s.Attempt)
			}
			inJail := answersOf(player.ask("seize " + strings.Join(attempts, " ")))
			out, err := world.Exec(ctx, namespace, j.hostname, "", append([]string{"seize"}, attempts...)...)
			Expect(err).NotTo(HaveOccurred())
			inContainer := answersOf(out.Stdout)
			for _, s := range attack.Seizures() {
				Expect(inJail).To(HaveKeyWithValue(s.Attempt, refused()), "%s: in the jail: %s", j.hostname, s.Target)
				Expect(inContainer).To(HaveKeyWithValue(s.Attempt, refused()), "%s: in the container: %s", j.hostname, s.Target)
				fmt.Fprintf(&seen, "%s: %s: in the jail: %s; in the container: %s\n", j.hostname, s.Attempt, inJail[s.Attempt], inContainer[s.Attempt])
			}

			By("letting no packet out of the jail of " + j.hostname)
			probes := []string{
				"tcp/" + net.JoinHostPort(world.NodeAddress, "10250"), "tcp/" + net.JoinHostPort(world.NodeAddress, "6443"),
				"tcp/" + net.JoinHostPort(serviceAddress(ctx, "default", "kubernetes"), "443"),
				"tcp/" + net.JoinHostPort(podAddress(ctx, namespace, client.MatchingLabels{bergv1.LabelContainer: j.hostname}), "1337"),
				"dns/" + net.JoinHostPort(serviceAddress(ctx, "kube-system", "kube-dns"), "53") + "/A/kubernetes.default.svc.cluster.local.",
			}
			for what, answer := range answersOf(player.ask("probe " + strings.Join(probes, " "))) {
				Expect(passes(answer)).To(BeFalse(), "%s: %s: %s", j.hostname, what, answer)
			}
		}

		By("being attacked in ways that succeed where a pod is privileged")
		control := seizePrivileged(ctx, stage)
		for _, s := range attack.Seizures() {
			fmt.Fprintf(&seen, "privileged: %s: %s\n", s.Attempt, control[s.Attempt])
		}
		AddReportEntry("what was seized", seen.String())
		for _, attempt := range []string{"files", "sysctl", "clock"} { // what every kernel has
			Expect(control).To(HaveKeyWithValue(attempt, "seized"), "the attempt proves nothing")
		}
	}, SpecTimeout(2*deployed.SpecLimit))

	It("cannot make namespaces without sandbox: nested", func(ctx SpecContext) {
		stage := journey.NewStage(ctx)
		stage.Challenge(ctx, "plain", jailContainers("")...)
		namespace := stage.Start(ctx, stage.Instance("plain")).ExpectPhase(ctx, 2*deployed.StartLimit, bergv1.PhaseRunning).Status.Namespace
		for _, j := range jails {
			_, err := world.Exec(ctx, namespace, j.hostname, "flag\n", "jail", "start")
			Expect(err).To(MatchError(Or(ContainSubstring("peration not permitted"), ContainSubstring("ermission"))), j.hostname)
		}
	}, SpecTimeout(deployed.SpecLimit))

	It("are not needed for a root that is no user of the node, where every node can do that", Label("attack"), func(ctx SpecContext) {
		watchNodes(ctx)
		stage := journey.NewStage(ctx)
		box, file := journey.Toolbox("box", newPort("box", 80, bergv1.PublicPort)), journey.Toolbox("file")
		box.Environment = map[string]bergv1.EnvironmentValue{"TOOLBOX_HTTP": bergv1.StringValue(":80")}
		box.DynamicFlag = &bergv1.DynamicFlag{Content: &bergv1.FlagFile{Path: jailFlag, Mode: ptr.To[int32](0o400)}}
		file.DynamicFlag = &bergv1.DynamicFlag{Executable: &bergv1.FlagFile{Path: "/get_flag"}}
		stage.Challenge(ctx, "root", box, file)

		By("being root of the node where the setting is false")
		withSetting(ctx, "CHALLENGE_USER_NAMESPACES", "false")
		plain := stage.Start(ctx, stage.Instance("root")).ExpectPhase(ctx, 2*deployed.StartLimit, bergv1.PhaseRunning).Status.Namespace
		Expect(usersOf(ctx, plain, "box").node).To(BeZero(), "the attempts below prove nothing")

		By("using user namespaces, since the operator sees that every node has them")
		withSetting(ctx, "CHALLENGE_USER_NAMESPACES", "auto") // another value: the operator starts again, and may watch nodes now
		reported := stage.Start(ctx, stage.Instance("root"))
		namespace := reported.ExpectPhase(ctx, 2*deployed.StartLimit, bergv1.PhaseRunning).Status.Namespace

		By("seeing what every container sees")
		Expect(world.Run(ctx, namespace, "box", "id")).To(HavePrefix("uid=0 "))
		Expect(world.Run(ctx, namespace, "box", "cat", jailFlag)).To(Equal(reported.Flag + "\n"))
		Expect(world.Run(ctx, namespace, "file", "run", "/get_flag")).To(Equal(reported.Flag))

		By("having users of its own, other ones in each pod")
		var first []int64
		for _, hostname := range []string{"box", "file"} {
			pods, err := world.Pods(ctx, namespace, client.MatchingLabels{bergv1.LabelContainer: hostname})
			Expect(err).NotTo(HaveOccurred())
			Expect(pods).To(ConsistOf(HaveField("Spec.HostUsers", HaveValue(BeFalse()))), hostname)
			own := usersOf(ctx, namespace, hostname)
			Expect(own.inside).To(BeZero(), hostname)
			Expect(own.node).To(BeNumerically(">=", 65536), "%s: these are users of the node", hostname)
			Expect(own.count).To(BeNumerically("<=", 65536), hostname)
			first = append(first, own.node)
		}
		Expect(first[0]-first[1]).To(Or(BeNumerically(">=", 65536), BeNumerically("<=", -65536)), "two pods have users in common")

		By("getting nothing of the node")
		command := []string{"seize"}
		for _, s := range attack.Seizures() {
			command = append(command, s.Attempt)
		}
		out, err := world.Exec(ctx, namespace, "box", "", command...)
		Expect(err).NotTo(HaveOccurred())
		for what, answer := range answersOf(out.Stdout) {
			Expect(answer).NotTo(Or(Equal("seized"), BeEmpty()), what)
		}
	}, SpecTimeout(2*deployed.SpecLimit))

	It("get their profile from a DaemonSet that may be applied again, and leaves other files", func(ctx SpecContext) {
		prepareNodes(ctx)
		set := &appsv1.DaemonSet{}
		key := client.ObjectKey{Namespace: seccompNamespace, Name: seccompNamespace}
		Expect(world.Get(ctx, key, set)).To(Succeed())
		Expect(installLog(ctx)).To(Or(ContainSubstring(nestedProfile+" was installed"), ContainSubstring(nestedProfile+" is up to date")))

		By("writing nothing the second time")
		before := set.DeepCopy()
		set.Spec.Template.Annotations = map[string]string{"berg.test/again": "true"}
		Expect(world.Patch(ctx, set, client.MergeFrom(before))).To(Succeed())
		profileReady(ctx)
		Expect(installLog(ctx)).To(ContainSubstring(nestedProfile + " is up to date"))
	}, SpecTimeout(deployed.SpecLimit))
})

// place is what the program of the image reports of where it is.
type place struct {
	UID, PID, Processes int
	Hostname            string
	Interfaces, Folders []string
	Namespaces          map[string]string
}

// jailContainers returns one container for each way to make a jail.
func jailContainers(sandbox bergv1.Sandbox) []bergv1.Container {
	containers := make([]bergv1.Container, 0, len(jails))
	for _, j := range jails {
		c := journey.Toolbox(j.hostname, newPort(j.hostname, 1337, bergv1.PublicPort))
		c.Image, c.Sandbox = jailImage, sandbox
		c.Environment = map[string]bergv1.EnvironmentValue{"JAIL": bergv1.StringValue(j.program), "JAIL_USER": bergv1.StringValue(j.user)}
		c.DynamicFlag = &bergv1.DynamicFlag{Content: &bergv1.FlagFile{Path: jailFlag}}
		containers = append(containers, c)
	}
	return containers
}

// users are those of a container: the first inside, the first on the node, and how many.
type users struct{ inside, node, count int64 }

// usersOf reads which users of the node those of a container are.
func usersOf(ctx context.Context, namespace, hostname string) (u users) {
	GinkgoHelper()
	text := world.Run(ctx, namespace, hostname, "cat", "/proc/self/uid_map")
	_, err := fmt.Sscan(text, &u.inside, &u.node, &u.count)
	Expect(err).NotTo(HaveOccurred(), text)
	return u
}

// prepareNodes does what docs/operations.md asks of an administrator, until the spec ends.
func prepareNodes(ctx context.Context) {
	GinkgoHelper()
	applyFolder(ctx, "nested")
	DeferCleanup(func(ctx SpecContext) {
		Expect(client.IgnoreNotFound(world.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: seccompNamespace}}))).To(Succeed())
		expect.Until(ctx, deployed.DeleteLimit, func(ctx context.Context) error { return world.NamespaceGone(ctx, seccompNamespace) })
	}, NodeTimeout(deployed.DeleteLimit))
	profileReady(ctx)
	watchNodes(ctx)
	withSetting(ctx, "CHALLENGE_NESTED_SECCOMP_PROFILE", nestedProfile)
}

// applyFolder applies a folder of config/berg.
func applyFolder(ctx context.Context, name string) {
	GinkgoHelper()
	command := exec.CommandContext(ctx, "kubectl", "apply", "-k", "../../../config/berg/"+name)
	command.Stdout, command.Stderr = GinkgoWriter, GinkgoWriter
	command.Env = os.Environ()
	Expect(command.Run()).To(Succeed())
}

// watchNodes lets the operator watch nodes, until the spec ends.
func watchNodes(ctx context.Context) {
	GinkgoHelper()
	applyFolder(ctx, "nodes")
	DeferCleanup(func(ctx SpecContext) {
		binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "berg-operator-berg-nodes"}}
		Expect(client.IgnoreNotFound(world.Delete(ctx, binding))).To(Succeed())
	}, NodeTimeout(deployed.ReactLimit))
}

// profileReady waits until the DaemonSet is ready in its present form.
func profileReady(ctx context.Context) {
	GinkgoHelper()
	expect.Until(ctx, deployed.StartLimit, func(ctx context.Context) error {
		set := &appsv1.DaemonSet{}
		if err := world.Get(ctx, client.ObjectKey{Namespace: seccompNamespace, Name: seccompNamespace}, set); err != nil {
			return err
		}
		s := set.Status
		return deployed.ErrorIf(s.ObservedGeneration != set.Generation || s.DesiredNumberScheduled == 0 || s.UpdatedNumberScheduled != s.DesiredNumberScheduled ||
			s.NumberReady != s.DesiredNumberScheduled, fmt.Sprintf("the profile is not on every node: %+v", s))
	})
}

// installLog returns what the newest pod of the DaemonSet said.
func installLog(ctx context.Context) string {
	GinkgoHelper()
	pods, err := world.Pods(ctx, seccompNamespace, nil)
	Expect(err).NotTo(HaveOccurred())
	pods = slices.DeleteFunc(pods, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
	Expect(pods).NotTo(BeEmpty())
	newest := slices.MaxFunc(pods, func(a, b corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	command := exec.CommandContext(ctx, "kubectl", "-n", seccompNamespace, "logs", newest.Name, "-c", "install")
	command.Env = os.Environ()
	out, err := command.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))
	return string(out)
}

// refused matches the answer of an attempt that did not succeed.
func refused() any { return Not(Or(Equal("seized"), BeEmpty())) }

// seizePrivileged tries the same in a pod that has every right.
func seizePrivileged(ctx context.Context, s *journey.Stage) map[string]string {
	GinkgoHelper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "privileged", Namespace: s.Namespace},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name: "toolbox", Image: deployed.ToolboxImage, ImagePullPolicy: corev1.PullIfNotPresent,
				SecurityContext: &corev1.SecurityContext{Privileged: ptr.To(true)},
			}},
			TerminationGracePeriodSeconds: new(int64),
		},
	}
	Expect(world.Create(ctx, pod)).To(Succeed())
	expect.Refreshed(ctx, deployed.StartLimit, pod, func() error {
		return deployed.ErrorIf(!deployed.PodReady(pod), "the privileged pod is not ready")
	})
	command := []string{"seize"}
	for _, seizure := range attack.Seizures() {
		command = append(command, seizure.Attempt)
	}
	out, err := world.ExecIn(ctx, client.ObjectKeyFromObject(pod), "", command...)
	Expect(err).NotTo(HaveOccurred())
	return answersOf(out.Stdout)
}

// answersOf reads lines of a name, a tab and an answer.
func answersOf(text string) map[string]string {
	answers := map[string]string{}
	for line := range strings.Lines(text) {
		if name, answer, found := strings.Cut(strings.TrimSpace(line), "\t"); found {
			answers[name] = answer
		}
	}
	Expect(slices.Collect(maps.Keys(answers))).NotTo(BeEmpty(), text)
	return answers
}

// prisoner is a player in a jail.
type prisoner struct {
	connection net.Conn
	lines      *bufio.Scanner
}

// enter connects to a jail at a node port, until the spec ends.
func enter(ctx context.Context, port int32) *prisoner {
	GinkgoHelper()
	var connection net.Conn
	expect.Until(ctx, deployed.ReactLimit, func(ctx context.Context) (err error) {
		connection, err = (&net.Dialer{}).DialContext(ctx, "tcp", world.AtNode(port))
		return err
	})
	DeferCleanup(func() { _ = connection.Close() })
	lines := bufio.NewScanner(connection)
	lines.Buffer(nil, 1<<20)
	return &prisoner{connection, lines}
}

// ask returns the answer to a line.
func (p *prisoner) ask(line string) string {
	GinkgoHelper()
	Expect(p.connection.SetDeadline(time.Now().Add(deployed.ReactLimit))).To(Succeed())
	_, err := fmt.Fprintln(p.connection, line)
	Expect(err).NotTo(HaveOccurred())
	var answer []string
	for p.lines.Scan() {
		if p.lines.Text() == "end" {
			return strings.Join(answer, "\n")
		}
		answer = append(answer, p.lines.Text())
	}
	Fail(fmt.Sprintf("the jail ended during %q: %v, %q", line, p.lines.Err(), answer))
	return ""
}
