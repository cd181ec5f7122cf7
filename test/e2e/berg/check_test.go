package berg

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/check"
	"github.com/bergctf/berg-operator/test/lib/deployed"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/journey"
	"github.com/bergctf/berg-operator/test/lib/limits"
)

// solverImage solves the sample challenges.
const solverImage = "ghcr.io/bergctf/samples/solver:v0.1.0"

// fault is what is wrong with a Challenge, and what its check has to say then.
type fault struct {
	name  string
	spoil func(*bergv1.Challenge)
	want  bergv1.CheckResultType
	says  string
	// shows is in what the solver wrote last.
	shows string
	// solver is the image of the solver, if it is another one.
	solver string
}

// faults are injected into the sample challenge pwn, whose port is one of the node's: they need
// no Gateway.
var faults = []fault{
	{"nothing", func(*bergv1.Challenge) {}, bergv1.CheckSolved, "found the flag", "", ""},
	{"the image is gone", func(c *bergv1.Challenge) { c.Spec.Containers[0].Image = "ghcr.io/bergctf/samples/gone:v0.1.0" }, bergv1.CheckNeverStarted, "not found", "", ""},
	{"the port is wrong", func(c *bergv1.Challenge) {
		c.Spec.Containers[0].Ports[0].Port = 1338
		c.Spec.Containers[0].ReadinessProbe = nil
	}, bergv1.CheckNeverStarted, "port 1338 of kiosk accepts no connection yet", "", ""},
	{"the port is wrong, and is not tried at the start", func(c *bergv1.Challenge) {
		c.Spec.Containers[0].Ports[0].Port, c.Spec.Containers[0].Ports[0].ConnectAtStart = 1338, ptr.To(false)
		c.Spec.Containers[0].ReadinessProbe = nil
	}, bergv1.CheckUnreachable, "69", "connection refused", ""},
	{"the probe is wrong", func(c *bergv1.Challenge) { c.Spec.Containers[0].ReadinessProbe.TCPSocket.Port.IntVal = 1338 }, bergv1.CheckNeverStarted, "container kiosk runs, and its readiness probe fails", "", ""},
	{"the mode of the flag is wrong", func(c *bergv1.Challenge) {
		c.Spec.Containers[0].DynamicFlag.Executable.Mode = ptr.To[int32](0)
	}, bergv1.CheckSolverCrashed, "exit code 1", "printer is out of order", ""},
	{"it crashes", func(c *bergv1.Challenge) {
		c.Spec.Containers[0].Environment = map[string]bergv1.EnvironmentValue{"LISTEN_HOST": bergv1.StringValue("203.0.113.250")} // not its own
	}, bergv1.CheckNeverStarted, "Crashing: Container kiosk: CrashLoopBackOff", "", ""},
	{"it has too little memory", func(c *bergv1.Challenge) {
		c.Spec.Containers[0].ResourceRequests = nil
		c.Spec.Containers[0].ResourceLimits.Memory = ptr.To(bergv1.Amount("512Ki"))
	}, bergv1.CheckNeverStarted, "memory", "", ""},
	{"its RuntimeClass is missing", func(c *bergv1.Challenge) { c.Spec.Containers[0].RuntimeClassName = "missing" }, bergv1.CheckNeverStarted, `RuntimeClass "missing" not found`, "", ""},
	{"the solver never ends", func(*bergv1.Challenge) {}, bergv1.CheckTooSlow, "40s", "", deployed.ToolboxImage},
}

var _ = Describe("A ChallengeCheck on real pods", Label("check"), Serial, func() {
	It("is solved in health, and finds each fault with its cause", func(ctx SpecContext) {
		allowChecks(ctx)
		for name, value := range map[string]string{"CHECK_CONCURRENCY": "3", "CHALLENGE_DOMAIN": world.NodeAddress} {
			withSetting(ctx, name, value)
		}
		stage := journey.NewStage(ctx)
		sample := stage.Sample(ctx, "pwn")
		checks := make([]*bergv1.ChallengeCheck, len(faults))
		for i, f := range faults {
			challenge := &bergv1.Challenge{ObjectMeta: metav1.ObjectMeta{Namespace: stage.Namespace, Name: fmt.Sprintf("fault-%d", i)}, Spec: *sample.Spec.DeepCopy()}
			f.spoil(challenge)
			Expect(world.Create(ctx, challenge)).To(Succeed(), f.name)
			checks[i] = &bergv1.ChallengeCheck{
				ObjectMeta: metav1.ObjectMeta{Namespace: stage.Namespace, Name: challenge.Name},
				Spec: bergv1.ChallengeCheckSpec{
					ChallengeRef: bergv1.ChallengeReference{Namespace: stage.Namespace, Name: challenge.Name},
					Solver:       bergv1.Solver{Image: cmp.Or(f.solver, solverImage), Env: []bergv1.SolverVariable{{Name: "CHALLENGE", Value: "pwn"}}},
					Timeout:      "40s",
				},
			}
			Expect(world.Create(ctx, checks[i])).To(Succeed(), f.name)
		}
		DeferCleanup(func(ctx SpecContext) {
			Expect(world.DeleteAllOf(ctx, &bergv1.ChallengeCheck{}, client.InNamespace(stage.Namespace))).To(Succeed())
			for _, c := range checks {
				expect.GoneWithin(ctx, c, deployed.DeleteLimit)
				Expect(world.NamespaceGone(ctx, check.NamespacePrefix+string(c.UID))).To(Succeed())
			}
		}, NodeTimeout(2*deployed.DeleteLimit))

		var wrong []string
		for i, f := range faults {
			c := checks[i]
			got := resultOf(ctx, c)
			AddReportEntry(f.name, fmt.Sprintf("%s: %s %s", got.Result, got.Message, got.Output))
			if got.Result != f.want || !strings.Contains(got.Message, f.says) || !strings.Contains(got.Output, f.shows) {
				wrong = append(wrong, fmt.Sprintf("%s: %s (%s; %s), want %s (%s; %s)", f.name, got.Result, got.Message, got.Output, f.want, f.says, f.shows))
			}
			Expect(apierrors.IsNotFound(world.Get(ctx, client.ObjectKey{Name: check.NamespacePrefix + string(c.UID)}, &corev1.Namespace{}))).To(BeTrue(), f.name)
		}
		Expect(wrong).To(BeEmpty(), strings.Join(wrong, "\n"))

		By("telling nothing else in health")
		healthy := checks[0]
		Expect(meta.IsStatusConditionTrue(healthy.Status.Conditions, bergv1.CheckConditionSolvable)).To(BeTrue())
		Expect(*healthy.Status.LastResult.StartSeconds).To(BeNumerically("<=", 40))
	}, SpecTimeout(limits.Scaled(10*time.Minute)))
})

// make check-health lets them be solved for an hour. No crew may be alerted for a challenge that works.
var _ = Describe("ChallengeChecks in health", Label("health"), Serial, func() {
	It("report nothing", func(ctx SpecContext) {
		lasts, err := time.ParseDuration(cmp.Or(os.Getenv("CHECK_HEALTH"), "2m"))
		Expect(err).NotTo(HaveOccurred())
		allowChecks(ctx)
		withSetting(ctx, "CHECK_CONCURRENCY", "2")
		stage := journey.NewStage(ctx)
		var checks []*bergv1.ChallengeCheck
		for _, sample := range []string{"web", "pwn", "shop"} {
			stage.Sample(ctx, sample)
			c := &bergv1.ChallengeCheck{
				ObjectMeta: metav1.ObjectMeta{Namespace: stage.Namespace, Name: sample},
				Spec: bergv1.ChallengeCheckSpec{
					ChallengeRef: bergv1.ChallengeReference{Namespace: stage.Namespace, Name: sample},
					Solver: bergv1.Solver{Image: solverImage, Env: []bergv1.SolverVariable{
						{Name: "CHALLENGE", Value: sample}, {Name: "CERTIFICATE_AUTHORITY", Value: string(world.Rest.CAData)},
					}},
					Schedule: bergv1.CheckSchedule{Every: "1m"},
					Timeout:  "90s",
				},
			}
			Expect(world.Create(ctx, c)).To(Succeed())
			checks = append(checks, c)
		}
		DeferCleanup(func(ctx SpecContext) {
			for _, c := range checks {
				Expect(world.Delete(ctx, c)).To(Succeed())
				expect.GoneWithin(ctx, c, deployed.DeleteLimit)
			}
		}, NodeTimeout(3*deployed.DeleteLimit))

		seen := map[string]bergv1.CheckResult{}
		Eventually(func(g Gomega) {
			for _, c := range checks {
				g.Expect(world.Get(ctx, client.ObjectKeyFromObject(c), c)).To(Succeed())
				for _, result := range c.Status.History {
					seen[c.Name+result.StartedAt.String()] = result
				}
				g.Expect(c.Status.History).NotTo(BeEmpty(), c.Name)
			}
			g.Expect(time.Since(checks[0].CreationTimestamp.Time)).To(BeNumerically(">", lasts))
		}).WithContext(ctx).WithTimeout(lasts + 5*time.Minute).WithPolling(10 * time.Second).Should(Succeed())
		var starts, solves []int64
		for _, result := range seen {
			Expect(result.Result).To(Equal(bergv1.CheckSolved), result.Message)
			starts, solves = append(starts, *result.StartSeconds), append(solves, *result.SolveSeconds)
		}
		slices.Sort(starts)
		slices.Sort(solves)
		last := len(seen) - 1
		AddReportEntry("checks", fmt.Sprintf("%d in %s, all solved; start p50 %d s, p99 %d s; solve p50 %d s, p99 %d s",
			len(seen), lasts, starts[last/2], starts[last*99/100], solves[last/2], solves[last*99/100]))
	}, SpecTimeout(3*time.Hour))
})

// resultOf waits until a check has ended.
func resultOf(ctx context.Context, c *bergv1.ChallengeCheck) *bergv1.CheckResult {
	GinkgoHelper()
	expect.Refreshed(ctx, 6*time.Minute, c, func() error {
		return deployed.ErrorIf(c.Status.LastResult == nil || c.Status.Run != nil, c.Name+": "+expect.Conditions(c))
	})
	return c.Status.LastResult
}

// allowChecks binds the role of config/berg/check until the spec ends.
func allowChecks(ctx context.Context) {
	GinkgoHelper()
	command := exec.CommandContext(ctx, "kubectl", "apply", "-k", "../../../config/berg/check")
	command.Stdout, command.Stderr = GinkgoWriter, GinkgoWriter
	command.Env = os.Environ()
	Expect(command.Run()).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "berg-operator-berg-check"}}
		Expect(client.IgnoreNotFound(world.Delete(ctx, binding))).To(Succeed())
	}, NodeTimeout(deployed.ReactLimit))
}
