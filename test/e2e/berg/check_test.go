package berg

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
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
)

// solverImage solves the sample challenges.
const solverImage = "ghcr.io/bergctf/samples/solver:v0.1.0"

// fault is what is wrong with a Challenge, and what its check has to say then.
type fault struct {
	name  string
	spoil func(*bergv1.Challenge)
	want  bergv1.CheckVerdict
	says  string
	// solver is the image of the solver, if it is another one.
	solver string
}

// faults are injected into the sample challenge pwn, whose port is one of the node's: they need
// no Gateway.
var faults = []fault{
	{"nothing", func(*bergv1.Challenge) {}, bergv1.CheckSolved, "found the flag", ""},
	{"the image is gone", func(c *bergv1.Challenge) { c.Spec.Containers[0].Image = "ghcr.io/bergctf/samples/gone:v0.1.0" }, bergv1.CheckNeverStarted, "ImageUnavailable: Container kiosk: ", ""},
	{"the port is wrong", func(c *bergv1.Challenge) {
		c.Spec.Containers[0].Ports[0].Port = 1338
		c.Spec.Containers[0].ReadinessProbe = nil
	}, bergv1.CheckUnreachable, "69", ""},
	{"the probe is wrong", func(c *bergv1.Challenge) { c.Spec.Containers[0].ReadinessProbe.TCPSocket.Port.IntVal = 1338 }, bergv1.CheckNeverStarted, "NotReadyYet: Not ready: kiosk", ""},
	{"the mode of the flag is wrong", func(c *bergv1.Challenge) {
		c.Spec.Containers[0].DynamicFlag.Executable.Mode = ptr.To[int32](0)
	}, bergv1.CheckSolverCrashed, "exit code 1", ""},
	{"it crashes", func(c *bergv1.Challenge) {
		c.Spec.Containers[0].Environment = map[string]bergv1.EnvironmentValue{"LISTEN_HOST": bergv1.StringValue("203.0.113.250")} // not its own
	}, bergv1.CheckNeverStarted, "Crashing: Container kiosk: CrashLoopBackOff", ""},
	{"it has too little memory", func(c *bergv1.Challenge) {
		c.Spec.Containers[0].ResourceRequests = nil
		c.Spec.Containers[0].ResourceLimits.Memory = ptr.To(bergv1.Amount("512Ki"))
	}, bergv1.CheckNeverStarted, "", ""},
	{"its RuntimeClass is missing", func(c *bergv1.Challenge) { c.Spec.Containers[0].RuntimeClassName = "missing" }, bergv1.CheckNeverStarted, "RuntimeClass", ""},
	{"the solver never ends", func(*bergv1.Challenge) {}, bergv1.CheckTooSlow, "40s", deployed.ToolboxImage},
}

var _ = Describe("A ChallengeCheck on real pods", Label("check"), Serial, func() {
	It("is solved in health, and finds each fault with its cause", func(ctx SpecContext) {
		allowChecks(ctx)
		for name, value := range map[string]string{"CHECK_CONCURRENCY": "3", "CHALLENGE_DOMAIN": world.NodeAddress} {
			DeferCleanup(func(ctx SpecContext) { deployed.SetVariable(ctx, name, setting(name)) }, NodeTimeout(2*deployed.StartLimit))
			deployed.SetVariable(ctx, name, value)
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
			expect.Until(ctx, 6*time.Minute, func(ctx context.Context) error {
				if err := world.Get(ctx, client.ObjectKeyFromObject(c), c); err != nil {
					return err
				}
				return deployed.ErrorIf(c.Status.LastResult == nil || c.Status.Run != nil, f.name+": "+expect.Conditions(c))
			})
			got := c.Status.LastResult
			AddReportEntry(f.name, fmt.Sprintf("%s: %s %s", got.Result, got.Message, got.Output))
			if got.Result != f.want || !strings.Contains(got.Message, f.says) {
				wrong = append(wrong, fmt.Sprintf("%s: %s (%s; %s), want %s (%s)", f.name, got.Result, got.Message, got.Output, f.want, f.says))
			}
			Expect(apierrors.IsNotFound(world.Get(ctx, client.ObjectKey{Name: check.NamespacePrefix + string(c.UID)}, &corev1.Namespace{}))).To(BeTrue(), f.name)
		}
		Expect(wrong).To(BeEmpty(), strings.Join(wrong, "\n"))

		By("telling nothing else in health")
		healthy := checks[0]
		Expect(meta.IsStatusConditionTrue(healthy.Status.Conditions, bergv1.CheckConditionSolvable)).To(BeTrue())
		Expect(*healthy.Status.LastResult.StartSeconds).To(BeNumerically("<=", 40))
	}, SpecTimeout(10*time.Minute))
})

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
