package plugin

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/limits"
)

// colour matches the control sequence of a colour.
var colour = regexp.MustCompile(`\x1b\[[0-9;]*m`)

const withFlag = `
flagFormat: "berg{...}"
containers:
- {hostname: web, image: "example.com/web:1", ports: [{name: web, port: 8080, type: publicHttpRoute}], dynamicFlag: {env: {name: FLAG}}}`

var _ = Describe("list", func() {
	It("prints text, names and JSON without the flag", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		bergtest.Challenge(ctx, ns, "web", bergtest.OneContainer)
		i := bergtest.Instance(ctx, ns, "web")
		expect.Reaches(ctx, i, bergv1.PhaseRunning)

		text := run(ctx, "list", "-n", ns)
		Expect(text.code).To(Equal(0))
		Expect(text.out).To(And(ContainSubstring(i.Name), ContainSubstring("Running"), ContainSubstring(i.Status.Services[0].URL), MatchRegexp(`1h5\dm`)))
		Expect(colour.MatchString(text.out)).To(BeFalse(), "colours in a pipe")

		Expect(run(ctx, "list", "-n", ns, "-o", "name").out).To(Equal(i.Name + "\n"))
		asJSON := run(ctx, "list", "-n", ns, "-o", "json")
		rows := decode[[]map[string]any](asJSON.out)
		Expect(rows).To(HaveLen(1))
		Expect(rows[0]).To(And(HaveKeyWithValue("phase", "Running"), HaveKeyWithValue("challenge", "web")))
		Expect(asJSON.out).NotTo(ContainSubstring("flag{"))
		Expect(decode[[]any](run(ctx, "list", "-n", ns, "--phase", "failed", "-o", "json").out)).To(BeEmpty())
	})

	It("keeps watching after a lost connection", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		bergtest.Challenge(ctx, ns, "web", bergtest.OneContainer)
		connection := newGate(ctx)
		t := inTerminal(ctx, 120, []string{"NO_COLOR=1"}, "--kubeconfig", connection.kubeconfig, "list", "-n", ns, "-w")
		first := bergtest.Instance(ctx, ns, "web")
		Eventually(t.Text).Should(MatchRegexp(first.Name + `\s+web\s+Running`))
		connection.cut()
		Eventually(t.Text).Should(ContainSubstring("no connection, retrying"))
		second := bergtest.Instance(ctx, ns, "web")
		connection.mend()
		Eventually(t.Text).Should(And(ContainSubstring("connected again"), MatchRegexp(second.Name+`\s+web\s+Running`)))
		t.Type("\x03")
		Expect(t.Code()).To(Equal(0))
	})

	It("fits a terminal, also after a resize, and uses colours there unless NO_COLOR is set", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		bergtest.Challenge(ctx, ns, "web", bergtest.OneContainer)
		i := bergtest.Instance(ctx, ns, "web")
		expect.Reaches(ctx, i, bergv1.PhaseRunning)
		for _, columns := range []uint16{60, 80, 200} {
			t := inTerminal(ctx, columns, nil, "list", "-n", ns)
			Expect(t.Code()).To(Equal(0))
			Expect(colour.MatchString(t.Text())).To(BeTrue(), "no colours in a terminal")
			Expect(widest(t.Text())).To(BeNumerically("<=", columns))
		}
		plain := inTerminal(ctx, 80, []string{"NO_COLOR=1"}, "list", "-n", ns)
		Expect(plain.Code()).To(Equal(0))
		Expect(colour.MatchString(plain.Text())).To(BeFalse(), "colours although NO_COLOR is set")
		dumb := inTerminal(ctx, 80, []string{"TERM=dumb"}, "list", "-n", ns)
		Expect(dumb.Code()).To(Equal(0))
		Expect(colour.MatchString(dumb.Text())).To(BeFalse(), "colours on a dumb terminal")

		watching := inTerminal(ctx, 200, []string{"NO_COLOR=1"}, "list", "-n", ns, "-w")
		Eventually(watching.Text).Should(ContainSubstring(i.Status.Services[0].URL))
		watching.Resize(50)
		before := len(watching.Text())
		apiserver.Change(ctx, i, func() { i.Spec.Timeout = "5h" })
		Eventually(func() string { return watching.Text()[before:] }).Should(ContainSubstring("…"))
		Expect(widest(watching.Text()[before:])).To(BeNumerically("<=", 50))
	})
})

// widest returns the number of columns of the longest line.
func widest(text string) int {
	most := 0
	for line := range strings.SplitSeq(colour.ReplaceAllString(text, ""), "\r\n") {
		most = max(most, len([]rune(line)))
	}
	return most
}

var _ = Describe("list --sort-by and -o yaml", func() {
	It("sorts rows by a column, and writes them as YAML", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		bergtest.Challenge(ctx, ns, "web", bergtest.OneContainer)
		for name, timeout := range map[string]string{"late": "3h", "soon": "1h", "later": "4h"} {
			i := bergtest.Instance(ctx, ns, "web", func(i *bergv1.ChallengeInstance) { i.Name, i.GenerateName, i.Spec.Timeout = name, "", timeout })
			expect.Reaches(ctx, i, bergv1.PhaseRunning)
		}
		Expect(run(ctx, "list", "-n", ns, "--sort-by", "left", "-o", "name").out).To(Equal("soon\nlate\nlater\n"))
		Expect(run(ctx, "list", "-n", ns, "-o", "name").out).To(Equal("late\nlater\nsoon\n"))
		wrong := run(ctx, "list", "-n", ns, "--sort-by", "colour")
		Expect(wrong.code).To(Equal(2))
		Expect(wrong.err).To(ContainSubstring("must be one of cause, challenge, created"))
		Expect(run(ctx, "__complete", "list", "--sort-by", "").out).To(And(ContainSubstring("left"), ContainSubstring("started")))

		var rows []map[string]any
		Expect(yaml.Unmarshal([]byte(run(ctx, "list", "-n", ns, "--sort-by", "left", "-o", "yaml").out), &rows)).To(Succeed())
		Expect(rows).To(HaveLen(3))
		Expect(rows[0]).To(And(HaveKeyWithValue("name", "soon"), HaveKeyWithValue("phase", "Running")))
		Expect(run(ctx, "list", "-n", ns, "-o", "xml").code).To(Equal(2))

		unknown := run(ctx, "list", "-n", ns, "--usage") // no pod of a gate runs here
		Expect(unknown.code).To(Equal(1))
		Expect(unknown.err).To(ContainSubstring("--usage: "))
	})
})

var _ = Describe("status", func() {
	It("shows the event on one screen", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		bergtest.Challenge(ctx, ns, "web", bergtest.OneContainer)
		bergtest.Challenge(ctx, ns, "bad", `containers: [{hostname: web, image: berg.test/behaviour/image-pull}]`)
		bergtest.Challenge(ctx, ns, "one", `{maxInstances: 1, containers: [{hostname: web, image: a}]}`)
		runs := bergtest.Instance(ctx, ns, "web")
		expect.Reaches(ctx, runs, bergv1.PhaseRunning)
		broken := bergtest.Instance(ctx, ns, "bad")
		expect.Shows(ctx, broken, bergv1.ConditionPodsReady, metav1.ConditionFalse, "ImagePullBackOff")
		first := bergtest.Instance(ctx, ns, "one")
		expect.Reaches(ctx, first, bergv1.PhaseRunning)
		second := bergtest.Instance(ctx, ns, "one")
		expect.Shows(ctx, second, bergv1.ConditionAdmitted, metav1.ConditionFalse, bergv1.ReasonQueued)

		screen := run(ctx, "status", "-n", ns)
		Expect(screen.code).To(Equal(4))
		Expect(screen.out).To(And(
			ContainSubstring("4: 1 Pending, 1 Starting, 2 Running"), MatchRegexp(`ImageUnavailable\s+1: .*cannot be pulled`), ContainSubstring(ns+"/"+broken.Name),
			MatchRegexp(`queue\s+1 wait, the first for .*1: the limit set by spec.maxInstances`), MatchRegexp(`headroom\s+for either 0 of `+ns+`/one \(spec.maxInstances\)`),
			MatchRegexp(`node ports\s+\d+ of 2768 left`), MatchRegexp(`Challenges\s+3 in total`)))

		type sum struct {
			Instances struct{ Total int }
			Problems  []struct {
				Cause     string
				Instances []string
			}
			Queue    struct{ ByCause map[bergv1.Cause]int }
			Capacity struct {
				Nodes    int
				CPU      struct{ Used, Total float64 }
				Headroom []struct {
					Challenge string
					Instances int
				}
			}
		}
		asJSON := decode[sum](run(ctx, "status", "-n", ns, "-o", "json").out)
		Expect(asJSON.Instances.Total).To(Equal(4))
		Expect(asJSON.Queue.ByCause).To(HaveKeyWithValue(bergv1.CauseQueued, 1))
		Expect(asJSON.Problems).To(HaveLen(1))
		Expect(asJSON.Problems[0].Cause).To(Equal("ImageUnavailable"))
		Expect(asJSON.Capacity.CPU.Used).To(And(BeNumerically(">", 0), BeNumerically("<=", asJSON.Capacity.CPU.Total)))
		Expect(asJSON.Capacity.Headroom).To(HaveLen(3))

		t := inTerminal(ctx, 80, []string{"NO_COLOR=1"}, "status", "-n", ns)
		Expect(t.Code()).To(Equal(4))
		Expect(strings.Count(t.Text(), "\n")).To(BeNumerically("<=", 40), "more than a screen")
	})

	It("shows a user the instances of the own namespace, and names what is not shown", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		bergtest.Challenge(ctx, ns, "web", bergtest.OneContainer)
		expect.Reaches(ctx, bergtest.Instance(ctx, ns, "web"), bergv1.PhaseRunning)
		r := run(ctx, "status", "-n", ns, "--as", bindViewer(ctx, ns))
		Expect(r.code).To(Equal(0))
		Expect(r.out).To(And(MatchRegexp(`instances\s+1: 1 Running`), ContainSubstring("you may not read nodes"), ContainSubstring("you may not read ChallengeChecks")))
		Expect(run(ctx, "status", "-n", ns, "--as", "stranger").code).To(Equal(7))
	})
})

var _ = Describe("try", func() {
	It("starts an instance, shows how to connect, and deletes it on Ctrl-C", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		bergtest.Challenge(ctx, ns, "web", withFlag)
		t := inTerminal(ctx, 100, nil, "try", "web", "-n", ns, "--show-flag")
		Eventually(t.Text).Should(And(ContainSubstring("running after"), ContainSubstring("http://"), ContainSubstring("Press Ctrl-C"), ContainSubstring("berg{try_")))
		var all bergv1.ChallengeInstanceList
		Expect(apiserver.Client.List(ctx, &all, client.InNamespace(ns))).To(Succeed())
		Expect(all.Items).To(HaveLen(1))
		Expect(all.Items[0].Spec.Timeout).To(Equal("1800s"))
		t.Type("\x03")
		Expect(t.Code()).To(Equal(0))
		Expect(t.Text()).To(ContainSubstring("all its objects are deleted"))
		Expect(apiserver.Names(ctx, &bergv1.ChallengeInstanceList{}, client.InNamespace(ns))).To(BeEmpty())
	})

	It("deletes an instance that cannot start, and explains why, with exit code 4", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		bergtest.Challenge(ctx, ns, "empty", `author: alice`)
		r := run(ctx, "try", "empty", "-n", ns, "--once")
		Expect(r.code).To(Equal(4))
		Expect(r.out).To(ContainSubstring("has no containers"))
		Expect(apiserver.Names(ctx, &bergv1.ChallengeInstanceList{}, client.InNamespace(ns))).To(BeEmpty())
	})

	It("gives up an instance that is not ready in time, with exit code 5", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		bergtest.Challenge(ctx, ns, "slow", `containers: [{hostname: web, image: berg.test/behaviour/image-pull}]`)
		r := run(ctx, "try", "slow", "-n", ns, "--once", "--wait", "3s", "-o", "json")
		Expect(r.code).To(Equal(5))
		Expect(r.out).To(And(ContainSubstring(`"event":"failed"`), ContainSubstring("cannot be pulled"), ContainSubstring(`"event":"gone"`)))
	})

	It("reports a missing Challenge, with exit code 3", func(ctx context.Context) {
		r := run(ctx, "try", "nothing", "-n", bergtest.Namespace(ctx))
		Expect(r.code).To(Equal(3))
		Expect(r.err).To(ContainSubstring("Challenge nothing does not exist"))
	})

	It("deletes the instance although the connection is lost for a while", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		bergtest.Challenge(ctx, ns, "web", bergtest.OneContainer)
		connection := newGate(ctx)
		t := inTerminal(ctx, 100, nil, "--kubeconfig", connection.kubeconfig, "try", "web", "-n", ns)
		Eventually(t.Text).Should(ContainSubstring("Press Ctrl-C"))
		connection.cut()
		t.Type("\x03")
		Eventually(t.Text).Should(ContainSubstring("deleting the instance"))
		connection.mend()
		Expect(t.Code()).To(Equal(0))
		Expect(apiserver.Names(ctx, &bergv1.ChallengeInstanceList{}, client.InNamespace(ns))).To(BeEmpty())
	})
})

var _ = Describe("why", func() {
	DescribeTable("explains the first problem, and what to do",
		func(ctx context.Context, spec string, code int, says ...string) {
			ns := bergtest.Namespace(ctx)
			bergtest.Challenge(ctx, ns, "some", spec)
			i := bergtest.Instance(ctx, ns, "some", func(i *bergv1.ChallengeInstance) { i.Spec.Flag = "" })
			Eventually(func(g Gomega) {
				r := run(ctx, "why", i.Name, "-n", ns)
				g.Expect(r.code).To(Equal(code))
				for _, words := range says {
					g.Expect(r.out).To(ContainSubstring(words))
				}
			}).WithPolling(500 * time.Millisecond).Should(Succeed())
		},
		Entry("nothing", `containers: [{hostname: web, image: a}]`, 0, "No problem found"),
		Entry("no containers", `author: alice`, 4, "has no containers", "spec.containers"),
		Entry("no flag", withFlag, 4, "needs a flag", "kubectl patch"),
		Entry("an image", `containers: [{hostname: web, image: berg.test/behaviour/image-pull}]`, 4, "Container web", "cannot be pulled"),
		Entry("a crash", `containers: [{hostname: web, image: berg.test/behaviour/crash}]`, 4, "keeps exiting", "--previous"),
	)

	It("explains that the owner has another instance", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		bergtest.Challenge(ctx, ns, "web", bergtest.OneContainer)
		first := bergtest.Instance(ctx, ns, "web")
		expect.Reaches(ctx, first, bergv1.PhaseRunning)
		second := bergtest.Instance(ctx, ns, "web", bergtest.OwnedBy(first.Spec.OwnerID))
		Eventually(func() string { return run(ctx, "why", second.Name, "-n", ns).out }).Should(ContainSubstring("an owner has one instance at a time"))
	})

	It("groups instances with the same problem", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		bergtest.Challenge(ctx, ns, "bad", `containers: [{hostname: web, image: berg.test/behaviour/crash}]`)
		bergtest.Challenge(ctx, ns, "good", bergtest.OneContainer)
		bergtest.Several(ctx, ns, "bad", 3)
		bergtest.Several(ctx, ns, "good", 2)
		Eventually(func() string { return run(ctx, "why", "--all", "-n", ns).out }).WithTimeout(limits.Wait).WithPolling(time.Second).
			Should(And(ContainSubstring("3 of 5 instances have a problem"), MatchRegexp(`(?s)^[^✗]*✗[^✗]*$`)))
	})

	It("names what its user may not read", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		bergtest.Challenge(ctx, ns, "bad", `containers: [{hostname: web, image: berg.test/behaviour/crash}]`)
		i := bergtest.Instance(ctx, ns, "bad")
		expect.Shows(ctx, i, bergv1.ConditionPodsReady, metav1.ConditionFalse, "CrashLoopBackOff")
		viewer := bindViewer(ctx, ns)
		r := run(ctx, "why", i.Name, "-n", ns, "--as", viewer)
		Expect(r.code).To(Equal(4))
		Expect(r.out).To(And(ContainSubstring("keeps exiting"), ContainSubstring("you may not read pods")))
		Expect(run(ctx, "end", i.Name, "-n", ns, "--as", viewer).code).To(Equal(7))
		Expect(run(ctx, "list", "-n", ns, "--as", "stranger").code).To(Equal(7))
	})
})

var _ = Describe("rollout", func() {
	It("previews which pods restart, and restarts no others", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		challenge := bergtest.Challenge(ctx, ns, "two", `
containers:
- {hostname: web, image: "example.com/web:1", ports: [{name: web, port: 8080, type: publicHttpRoute}]}
- {hostname: db, image: "example.com/db:1", ports: [{port: 5432}]}`)
		all := bergtest.Several(ctx, ns, "two", 3)
		before := map[string]string{}
		for _, i := range all {
			expect.Reaches(ctx, i, bergv1.PhaseRunning)
			for container, pod := range pods(ctx, i) {
				before[i.Name+container] = pod
			}
		}
		Expect(run(ctx, "rollout", "two", "-n", ns).out).To(ContainSubstring("up to date"))
		apiserver.Change(ctx, challenge, func() { challenge.Spec.Containers[0].Image = "example.com/web:2" })
		Eventually(func() string { return run(ctx, "rollout", "two", "-n", ns, "--dry-run").out }).
			Should(And(ContainSubstring("3 instances: web restarts (image example.com/web:1 → example.com/web:2); db stays"), ContainSubstring("3 pods restart")))
		Expect(run(ctx, "rollout", "two", "-n", ns).code).To(Equal(2), "there is no terminal for the confirmation")

		asked := inTerminal(ctx, 100, nil, "rollout", "two", "-n", ns)
		Eventually(asked.Text).Should(ContainSubstring("[y/N]"))
		asked.Type("n\r")
		Expect(asked.Code()).To(Equal(130))

		done := run(ctx, "rollout", "two", "-n", ns, "--yes", "--max-unavailable", "1", "-o", "json")
		Expect(done.code).To(Equal(0))
		for _, i := range all {
			expect.Shows(ctx, i, bergv1.ConditionUpToDate, metav1.ConditionTrue, bergv1.ReasonUpToDate)
			Eventually(func(g Gomega) {
				now := pods(ctx, i)
				g.Expect(now["web"]).NotTo(Or(BeEmpty(), Equal(before[i.Name+"web"])))
				g.Expect(now["db"]).To(Equal(before[i.Name+"db"]))
			}).Should(Succeed())
		}
		Expect(run(ctx, "rollout", "two", "-n", ns, "--yes").out).To(ContainSubstring("up to date"))
	})

	It("stops when it breaks instances", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		challenge := bergtest.Challenge(ctx, ns, "web", bergtest.OneContainer)
		all := bergtest.Several(ctx, ns, "web", 4)
		for _, i := range all {
			expect.Reaches(ctx, i, bergv1.PhaseRunning)
		}
		apiserver.Change(ctx, challenge, func() { challenge.Spec.Containers[0].Image = "berg.test/behaviour/crash" })
		for _, i := range all {
			expect.Shows(ctx, i, bergv1.ConditionUpToDate, metav1.ConditionFalse, bergv1.ReasonChallengeChanged)
		}
		r := run(ctx, "rollout", "web", "-n", ns, "--yes", "--max-unavailable", "1", "--stop-after", "1")
		Expect(r.code).To(Equal(4))
		Expect(r.err).To(ContainSubstring("stopped"))
		left := 0
		for _, i := range all {
			Expect(apiserver.Client.Get(ctx, client.ObjectKeyFromObject(i), i)).To(Succeed())
			if meta.IsStatusConditionFalse(i.Status.Conditions, bergv1.ConditionUpToDate) {
				left++
			}
		}
		Expect(left).To(Equal(3))
	})

	It("counts an instance that is not ready in time as failed", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		challenge := bergtest.Challenge(ctx, ns, "web", bergtest.OneContainer)
		all := bergtest.Several(ctx, ns, "web", 3)
		for _, i := range all {
			expect.Reaches(ctx, i, bergv1.PhaseRunning)
		}
		apiserver.Change(ctx, challenge, func() { challenge.Spec.Containers[0].Image = "berg.test/behaviour/not-ready" })
		for _, i := range all {
			expect.Shows(ctx, i, bergv1.ConditionUpToDate, metav1.ConditionFalse, bergv1.ReasonChallengeChanged)
		}
		r := run(ctx, "rollout", "challenge/web", "-n", ns, "--yes", "--max-unavailable", "1", "--stop-after", "1", "--ready-timeout", "3s")
		Expect(r.code).To(Equal(4))
		Expect(r.err).To(ContainSubstring("stopped"))
	})

	It("names instances that cannot be updated, and does not wait for them", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		challenge := bergtest.Challenge(ctx, ns, "web", bergtest.OneContainer)
		i := bergtest.Instance(ctx, ns, "web")
		expect.Reaches(ctx, i, bergv1.PhaseRunning)
		apiserver.Change(ctx, challenge, func() { challenge.Spec.Containers = nil })
		expect.Shows(ctx, i, bergv1.ConditionUpToDate, metav1.ConditionFalse, bergv1.ReasonNothingToRun)
		for _, more := range [][]string{{"--yes"}, {"--dry-run"}} {
			r := run(ctx, append([]string{"rollout", "web", "-n", ns}, more...)...)
			Expect(r.code).To(Equal(4))
			Expect(r.out + r.err).To(And(ContainSubstring(i.Name), ContainSubstring("has no containers")))
		}
		Expect(apiserver.Client.Get(ctx, client.ObjectKeyFromObject(i), i)).To(Succeed())
		Expect(i.Annotations).NotTo(HaveKey(bergv1.AnnotationRollout))
	})
})

// pods returns the UIDs of the pods of an instance by container, without terminating ones.
func pods(ctx context.Context, i *bergv1.ChallengeInstance) map[string]string {
	GinkgoHelper()
	var list corev1.PodList
	Expect(apiserver.Client.List(ctx, &list, client.InNamespace(i.Status.Namespace))).To(Succeed())
	out := map[string]string{}
	for _, p := range list.Items {
		if p.DeletionTimestamp == nil {
			out[p.Labels[bergv1.LabelContainer]] = string(p.UID)
		}
	}
	return out
}

var _ = Describe("freeze and unfreeze", func() {
	It("starts and expires nothing in between, and restores the time left", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		challenge := bergtest.Challenge(ctx, ns, "web", bergtest.OneContainer)
		live, ending := bergtest.Instance(ctx, ns, "web"), bergtest.Instance(ctx, ns, "web")
		bergtest.AllRun(ctx, live, ending) // a busy machine may need long for that
		lived := time.Since(live.Status.StartedAt.Time)
		apiserver.Change(ctx, live, func() { live.Spec.Timeout = fmt.Sprintf("%ds", int(lived.Seconds())+8) })
		until := metav1.NewTime(time.Now().Add(8 * time.Second))
		apiserver.Change(ctx, ending, func() { ending.Spec.Until = &until })
		Expect(run(ctx, "freeze", "-n", ns).code).To(Equal(0))
		Expect(run(ctx, "end", live.Name, "-n", ns, "--after", "1s").err).To(ContainSubstring("frozen: unfreeze it first"))
		late := bergtest.Instance(ctx, ns, "web")
		expect.Shows(ctx, late, bergv1.ConditionChallengeFound, metav1.ConditionFalse, bergv1.ReasonFrozen)
		Expect(late.Status.Phase).To(Equal(bergv1.PhasePending))
		Expect(run(ctx, "why", late.Name, "-n", ns).out).To(ContainSubstring("frozen"))
		Expect(run(ctx, "list", "-n", ns).out).To(ContainSubstring("frozen"))
		again := run(ctx, "freeze", "-n", ns)
		Expect(again.out).To(And(ContainSubstring("froze Challenges: 0 of 1, 1 already done"), ContainSubstring("froze instances: 1 of 3, 2 already done")))

		Consistently(func(g Gomega) {
			g.Expect(apiserver.Client.Get(ctx, client.ObjectKeyFromObject(live), live)).To(Succeed())
			g.Expect(live.DeletionTimestamp).To(BeNil())
			g.Expect(live.Spec.TerminationReason).To(BeEmpty())
		}).WithTimeout(10 * time.Second).WithPolling(time.Second).Should(Succeed())
		Expect(live.Status.ExpiresAt).To(BeNil())

		Expect(run(ctx, "unfreeze", "-n", ns).code).To(Equal(0))
		Expect(apiserver.Client.Get(ctx, client.ObjectKeyFromObject(live), live)).To(Succeed(), "it expired immediately")
		Expect(apiserver.Client.Get(ctx, client.ObjectKeyFromObject(ending), ending)).To(Succeed(), "spec.until was not moved")
		Expect(ending.Spec.Until.Sub(until.Time)).To(BeNumerically(">=", 9*time.Second))
		expect.Reaches(ctx, late, bergv1.PhaseRunning)
		bergtest.Gone(ctx, live)
		bergtest.Gone(ctx, ending)
		Expect(apiserver.Client.Get(ctx, client.ObjectKeyFromObject(challenge), challenge)).To(Succeed())
		Expect(challenge.Annotations).NotTo(HaveKey(bergv1.AnnotationFrozen))
		Expect(run(ctx, "freeze", "-n", ns, "--dry-run").out).To(And(ContainSubstring("Challenge "+ns+"/web"), ContainSubstring("instance "+ns+"/"+late.Name)))
		Expect(run(ctx, "unfreeze", "-n", ns).out).To(ContainSubstring("unfroze instances: 0 of 1, 1 already done"))
	})
})

var _ = Describe("end", func() {
	It("asks for confirmation before it ends many, and can be repeated", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		bergtest.Challenge(ctx, ns, "web", bergtest.OneContainer)
		all := bergtest.Several(ctx, ns, "web", 3)
		for _, i := range all {
			expect.Reaches(ctx, i, bergv1.PhaseRunning)
		}
		Expect(run(ctx, "end", "-n", ns).code).To(Equal(2))
		Expect(run(ctx, "end", "--all", "-n", ns).code).To(Equal(2))
		Expect(run(ctx, "end", "--all", "-n", ns, "--dry-run").out).To(ContainSubstring("nothing was done"))
		Expect(run(ctx, "end", all[0].Name, "-n", ns, "--wait").code).To(Equal(0))
		Expect(run(ctx, "end", "--all", "-n", ns, "--yes", "--wait").code).To(Equal(0))
		Expect(apiserver.Names(ctx, &bergv1.ChallengeInstanceList{}, client.InNamespace(ns))).To(BeEmpty())
		Expect(run(ctx, "end", "--all", "-n", ns, "--yes").out).To(ContainSubstring("ended 0 of 0"))
		Expect(run(ctx, "end", all[0].Name, "-n", ns).code).To(Equal(3))
	})

	It("refuses names that do not exist, and says in which zone a time is", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		bergtest.Challenge(ctx, ns, "web", bergtest.OneContainer)
		i := bergtest.Instance(ctx, ns, "web")
		expect.Reaches(ctx, i, bergv1.PhaseRunning)
		for _, wrong := range [][]string{
			{"end", "--challenge", "wbe", "--yes"},
			{"extend", "30m", "--challenge", "wbe"},
			{"list", "--challenge", "wbe"},
			{"why", "--challenge", "wbe"},
			{"end", "--node", "nosuch", "--yes"},
			{"freeze", "--challenge", "wbe"},
			{"logs", i.Name, "-c", "wbe"},
			{"logs", i.Name, "-c", "wbe", "-f"},
		} {
			r := run(ctx, append(wrong, "-n", ns)...)
			Expect(r.code).To(Equal(3), strings.Join(wrong, " "))
			Expect(r.err).To(Or(ContainSubstring("wbe"), ContainSubstring("nosuch")))
		}
		for _, command := range [][]string{{"list"}, {"end", "--all", "--yes"}, {"why", "--all"}, {"extend", "30m", "--all"}} {
			r := run(ctx, append(command, "-n", "nosuch")...)
			Expect(r.code).To(Equal(3), strings.Join(command, " "))
			Expect(r.err).To(ContainSubstring("namespace nosuch does not exist"))
		}
		Expect(run(ctx, "list", "--owner", "alice", "-n", ns).code).To(Equal(2))
		bergtest.Challenge(ctx, ns, "idle", bergtest.OneContainer)
		Expect(run(ctx, "end", "--challenge", "idle", "--yes", "-n", ns).code).To(Equal(0), "it has no instance, and exists")
		Expect(run(ctx, "extend", "--until", "3h", "--all", "-n", ns).err).To(MatchRegexp(`new expiry: \d{4}-\d\d-\d\d \d\d:\d\d:\d\d [-+]\d\d:\d\d`))
		// A crew that may read nothing else is not told that a name is wrong, if it cannot be known.
		viewer := bindViewer(ctx, ns)
		Expect(run(ctx, "list", "--challenge", "wbe", "-n", ns, "--as", viewer).code).To(Equal(0))
		refused := run(ctx, "end", i.Name, "-n", ns, "--as", viewer)
		Expect(refused.code).To(Equal(7))
		Expect(refused.err).To(ContainSubstring("RoleBinding in this namespace to the ClusterRole berg-operator-challengeinstance-editor"))
		Expect(run(ctx, "list", "-A", "--as", viewer).err).To(And(ContainSubstring("without -A"), ContainSubstring("kubectl auth can-i list challengeinstances.berg.norelect.ch -A")))
	})

	It("ends instances later by their timeout, and those on a node", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		bergtest.Challenge(ctx, ns, "web", bergtest.OneContainer)
		i, other := bergtest.Instance(ctx, ns, "web"), bergtest.Instance(ctx, ns, "web")
		expect.Reaches(ctx, i, bergv1.PhaseRunning)
		expect.Reaches(ctx, other, bergv1.PhaseRunning)
		Expect(run(ctx, "end", i.Name, "-n", ns, "--after", "20m").code).To(Equal(0))
		Eventually(func(g Gomega) {
			g.Expect(apiserver.Client.Get(ctx, client.ObjectKeyFromObject(i), i)).To(Succeed())
			g.Expect(time.Until(i.Status.ExpiresAt.Time)).To(BeNumerically("~", 20*time.Minute, 20*time.Second))
		}).Should(Succeed())
		Expect(run(ctx, "end", i.Name, "-n", ns, "--after", "40m").out).To(ContainSubstring("1 already done"))

		var list corev1.PodList
		Expect(apiserver.Client.List(ctx, &list, client.InNamespace(i.Status.Namespace))).To(Succeed())
		node := list.Items[0].Spec.NodeName
		r := run(ctx, "end", "--node", node, "-n", ns, "--dry-run")
		Expect(r.out).To(ContainSubstring(i.Name))
	})
})

var _ = Describe("doctor and completion", func() {
	It("reports problems, also to a user without permissions", Label("versions"), func(ctx context.Context) {
		r := run(ctx, "doctor", "--offline", "-o", "json")
		Expect(r.code).To(Equal(4))
		report := decode[struct {
			Level  string
			Checks []struct{ Check, Level, Text, Do string }
		}](r.out)
		Expect(report.Level).To(Equal("problem"))
		for _, line := range report.Checks {
			if line.Level == "problem" {
				Expect(line.Do).NotTo(BeEmpty(), line.Check)
			}
		}
		levels := map[string]string{}
		for _, line := range report.Checks {
			levels[line.Check] = line.Level
		}
		for _, check := range []string{"operator's account", "operator's deletions", "accounts of Projects", "pods of Projects", "pods of networks"} {
			Expect(levels).To(HaveKeyWithValue(check, "ok"), "an admission policy is installed and not seen")
		}
		poor := run(ctx, "doctor", "--offline", "--as", "stranger", "--as-group", "system:authenticated")
		Expect(poor.code).To(BeElementOf(0, 4))
		Expect(poor.out).To(And(ContainSubstring("you may not"), ContainSubstring("? operator")))
	})

	It("reports an unreachable API server, with exit code 8", func(ctx context.Context) {
		connection := newGate(ctx)
		connection.cut()
		Expect(run(ctx, "--kubeconfig", connection.kubeconfig, "list").code).To(Equal(8))
		Expect(run(ctx, "--kubeconfig", connection.kubeconfig, "list", "-w").code).To(Equal(8))
		Expect(run(ctx, "--kubeconfig", connection.kubeconfig, "doctor").code).To(Equal(8))
	})

	It("completes names in a shell", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		bergtest.Challenge(ctx, ns, "unmistakable", bergtest.OneContainer)
		Expect(run(ctx, "__complete", "try", "-n", ns, "unm").out).To(ContainSubstring("unmistakable"))
		for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
			Expect(run(ctx, "completion", shell).out).NotTo(BeEmpty())
		}
	})
})
