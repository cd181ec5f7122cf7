package operator

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/operator"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/launch"
	"github.com/bergctf/berg-operator/test/lib/limits"
)

var (
	// lateness is what a busy machine adds.
	lateness = limits.Scaled(5 * time.Second)
	// lookingAround is how late a replica may notice that no replica leads: two of its
	// looks, each of which the election delays by up to 1.2 of itself.
	lookingAround = 2*22*operator.RetryPeriod/10 + lateness
)

var _ = Describe("Operators as processes", Ordered, ContinueOnFailure, func() {
	withProcesses()

	It("is alive immediately, and ready when its caches are filled", func(ctx context.Context) {
		p := start(ctx)
		held, let := p.gate.holdUp(func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/poddisruptionbudgets") })
		Eventually(held).Should(BeClosed())
		Eventually(p.probe).WithArguments("/healthz").Should(Equal(http.StatusOK))
		Expect(p.probe("/readyz")).To(Equal(http.StatusInternalServerError), "ready without having seen everything")
		Expect(p.reported("/readyz?verbose")).NotTo(ContainSubstring("filled"), "a reason that is the administrator's alone")
		Expect(p.reported("/healthz?verbose")).To(HaveSuffix("healthz check passed\n"))
		for _, path := range []string{"/", "/metrics", "/debug/pprof/"} {
			Expect(p.probe(path)).To(Equal(http.StatusNotFound), path)
		}
		let()
		p.ready()
	})

	It("waits for an API server that is away, alive and not ready", func(ctx context.Context) {
		p := prepare(ctx)
		p.gate.SetShut(true)
		p.begin()
		Eventually(p.probe).WithArguments("/healthz").Should(Equal(http.StatusOK))
		Expect(p.probe("/readyz")).To(Equal(http.StatusServiceUnavailable))
		Eventually(p.log.String).Should(ContainSubstring("waiting for the API server"))
		p.gate.SetShut(false)
		p.ready().leads(ctx)

		By("telling one to stop that still waits")
		p = prepare(ctx)
		p.gate.SetShut(true)
		p.begin()
		Eventually(p.probe).WithArguments("/healthz").Should(Equal(http.StatusOK))
		p.send(syscall.SIGTERM)
		Expect(p.exits()).To(Equal(0), "%s", p.log)
	})

	It("continues when the leader is killed: no write before the lease is over, none lost", func(ctx context.Context) {
		ns := bergtest.Publish(ctx, "killed", bergtest.OneContainer)
		first := start(ctx).leads(ctx).ready()
		second := start(ctx).ready()
		load := bergtest.Several(ctx, ns, "killed", 20)
		// Killed in the middle: some have been given an identity, none is ready.
		Eventually(func() int { return len(first.gate.work(time.Time{})) }).Should(BeNumerically(">", 30))
		killed := first.send(syscall.SIGKILL)
		<-first.Exited()
		Expect(second.gate.work(time.Time{})).To(BeEmpty(), "the standby has written")
		before := identities(ctx, ns)
		load = append(load, bergtest.Several(ctx, ns, "killed", 10)...)

		bergtest.AllRun(ctx, load...)
		for name, id := range identities(ctx, ns) {
			if before[name] != "" {
				Expect(id).To(Equal(before[name]), "%s became another instance", name)
			}
		}
		gap := second.gate.work(time.Time{})[0].At.Sub(killed)
		AddReportEntry("gap after SIGKILL", gap.String(), ReportEntryVisibilityAlways)
		Expect(gap).To(BeNumerically("<", operator.LeaseDuration+lateness))
		Expect(gap).To(BeNumerically(">", operator.HoldDuration-3*operator.RetryPeriod), "it did not wait for the lease to run out")
		// Events come late. What the first has not written when it is killed is lost.
		Eventually(func(g Gomega) {
			reported := startEvents(ctx, ns)
			for _, i := range load[20:] {
				g.Expect(reported).To(HaveKey(i.Name))
			}
		}).Should(Succeed())
		Expect(startEvents(ctx, ns)).To(HaveEach(1), "an instance was started twice")
		Expect(second.errorLines()).To(BeEmpty())
	})

	It("writes nothing as a deposed leader, and exits", func(ctx context.Context) {
		ns := bergtest.Publish(ctx, "deposed", bergtest.OneContainer)
		first := start(ctx).leads(ctx).ready()
		second := start(ctx).ready()
		load := bergtest.Several(ctx, ns, "deposed", 20)
		Eventually(func() int { return len(first.gate.work(time.Time{})) }).Should(BeNumerically(">", 30))
		Expect(first.Pause()).To(Succeed()) // in the middle of many reconciliations
		bergtest.AllRun(ctx, load...)
		second.leads(ctx)
		// What it will find changed: half of what it was building is on its way out.
		for _, i := range load[:10] {
			Expect(k8s.Delete(ctx, i)).To(Succeed())
		}
		for _, i := range load[:10] {
			bergtest.Gone(ctx, i)
		}
		leader, kept := holder(ctx), resourceVersions(ctx, load[10:])

		resumed := first.send(syscall.SIGCONT)
		Expect(first.exits()).To(Equal(1))
		AddReportEntry("exit of the deposed leader", time.Since(resumed).String(), ReportEntryVisibilityAlways)
		Expect(time.Since(resumed)).To(BeNumerically("<", operator.RenewDeadline), "it went on as if it led")
		Expect(first.gate.work(resumed)).To(BeEmpty())
		Expect(first.log.String()).To(ContainSubstring("another replica leads"))
		Expect(holder(ctx)).To(Equal(leader), "it took or gave away the lease of the other")
		Expect(resourceVersions(ctx, load[10:])).To(Equal(kept), "what runs was touched")
		for _, i := range load[:10] {
			Expect(bergtest.NamespaceExists(ctx, i)).To(BeFalse(), "it brought back what was gone")
		}
		Expect(second.errorLines()).To(BeEmpty())
	})

	It("hands over immediately after SIGTERM, when it has completed what it has begun", func(ctx context.Context) {
		ns := bergtest.Publish(ctx, "handover", bergtest.OneContainer)
		first := start(ctx).leads(ctx).ready()
		second := start(ctx).ready()
		held, let := first.gate.holdUp(func(r *http.Request) bool {
			return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/deployments")
		})
		begun := bergtest.Instance(ctx, ns, "handover")
		Eventually(held).Should(BeClosed())
		leader := holder(ctx)
		reported := first.send(syscall.SIGTERM)
		Eventually(first.log.String).Should(ContainSubstring("waiting for all workers to finish"))
		waiting := bergtest.Instance(ctx, ns, "handover")
		Expect(holder(ctx)).To(Equal(leader), "the lease was given back before the work was done")
		let()
		Expect(first.exits()).To(Equal(0), "%s", first.log)
		ended := time.Now()
		pass := first.gate.work(reported)
		Expect(pass).NotTo(BeEmpty())
		Expect(pass[len(pass)-1].Path).To(HaveSuffix("/challengeinstances/"+begun.Name+"/status"), "the reconciliation was cut off: %v", pass)

		expect.Reaches(ctx, begun, bergv1.PhaseRunning)
		expect.Reaches(ctx, waiting, bergv1.PhaseRunning)
		gap := second.gate.work(time.Time{})[0].At.Sub(ended)
		AddReportEntry("gap after SIGTERM", gap.String(), ReportEntryVisibilityAlways)
		Expect(gap).To(BeNumerically("<", lookingAround))
		Expect(gap).To(BeNumerically("<", operator.LeaseDuration))
		Expect(append(first.errorLines(), second.errorLines()...)).To(BeEmpty())
	})

	It("stays alive as a standby that cannot reach the API server, and leads when its time comes", func(ctx context.Context) {
		ns := bergtest.Publish(ctx, "cut-off", bergtest.OneContainer)
		first := start(ctx).leads(ctx).ready()
		second := start(ctx).ready()
		leader := holder(ctx)
		second.gate.SetShut(true)
		Consistently(func(g Gomega) {
			g.Expect(second.probe("/healthz")).To(Equal(http.StatusOK))
			g.Expect(second.probe("/readyz")).To(Equal(http.StatusOK))
			g.Expect(holder(ctx)).To(Equal(leader))
		}).WithContext(ctx).WithTimeout(3 * time.Second).Should(Succeed())
		second.gate.SetShut(false)

		By("cutting off the leader")
		cut := time.Now()
		first.gate.SetShut(true)
		bergtest.Running(ctx, ns, "cut-off")
		AddReportEntry("gap after a cut", second.gate.work(time.Time{})[0].At.Sub(cut).String(), ReportEntryVisibilityAlways)
		Expect(first.exits()).To(Equal(1))

		By("telling the standby to stop: the leader does not notice")
		third := start(ctx).ready()
		leader = holder(ctx)
		third.send(syscall.SIGTERM)
		Expect(third.exits()).To(Equal(0), "%s", third.log)
		Expect(third.errorLines()).To(BeEmpty())
		Expect(holder(ctx)).To(Equal(leader))
		second.send(syscall.SIGTERM)
		Expect(second.exits()).To(Equal(0), "%s", second.log)
		Expect(holder(ctx)).To(BeEmpty(), "the lease was not given back")
	})

	It("exits on wrong settings, naming all of them, before it says or serves anything", func() {
		way := newGate(rest.AnonymousClientConfig(restConfig))
		probes, err := launch.FreeAddress()
		Expect(err).NotTo(HaveOccurred())
		command := exec.Command(program)
		command.Env = []string{
			"CHALLENGE_HTTP_PORT=0", "CHALLENGE_INSTANCE_TIMEOUT=soon", "LOG_LEVEL=8", "CHALLENGE_CPU_LIMIT=-1",
			"HEALTH_PROBE_BIND_ADDRESS=" + probes,
			"KUBECONFIG=" + os.DevNull, "KUBERNETES_SERVICE_HOST=" + strings.TrimPrefix(way.Config().Host, "http://"),
		}
		output, err := command.CombinedOutput()
		Expect(err).To(HaveOccurred())
		Expect(command.ProcessState.ExitCode()).To(Equal(1))
		for _, name := range []string{"CHALLENGE_HTTP_PORT", "CHALLENGE_INSTANCE_TIMEOUT", "LOG_LEVEL", "CHALLENGE_CPU_LIMIT"} {
			Expect(string(output)).To(ContainSubstring(name))
		}
		Expect(string(output)).NotTo(ContainSubstring("Starting"))
		Expect(way.work(time.Time{})).To(BeEmpty())
	})
})

// identities maps the instances of a namespace to their status.instanceId.
func identities(ctx context.Context, namespace string) map[string]string {
	GinkgoHelper()
	instances := apiserver.List[bergv1.ChallengeInstanceList](ctx, client.InNamespace(namespace))
	out := map[string]string{}
	for _, i := range instances.Items {
		out[i.Name] = i.Status.InstanceID
	}
	return out
}

// resourceVersions maps instances to their resource version: it changes with every write.
func resourceVersions(ctx context.Context, instances []*bergv1.ChallengeInstance) map[string]string {
	GinkgoHelper()
	out := map[string]string{}
	for _, i := range instances {
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(i), i)).To(Succeed())
		out[i.Name] = i.ResourceVersion
	}
	return out
}

// startEvents counts how often each instance was told to start.
func startEvents(ctx context.Context, namespace string) map[string]int {
	GinkgoHelper()
	events := apiserver.List[corev1.EventList](ctx, client.InNamespace(namespace))
	out := map[string]int{}
	for _, e := range events.Items {
		if e.Reason == bergv1.ReasonInstanceCreating {
			out[e.InvolvedObject.Name]++
			if e.Series != nil {
				out[e.InvolvedObject.Name] += int(e.Series.Count)
			}
		}
	}
	return out
}
