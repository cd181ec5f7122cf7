package berg

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/deployed"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/journey"
	"github.com/bergctf/berg-operator/test/lib/limits"
)

// expiryLimit is how late an instance may be seen to end. The contract says one second; the
// rest is for a busy machine to end it and to tell us. How late it was is reported.
var expiryLimit = limits.Scaled(5 * time.Second)

var _ = Describe("The life of an instance", Label("versions"), func() {
	It("is extended, shortened, and deleted on time", func(ctx SpecContext) {
		stage := journey.NewStage(ctx)
		reported := stage.RunToolbox(ctx)
		started := reported.Now().Status.StartedAt.Time
		expires := func(timeout time.Duration) *bergv1.ChallengeInstance {
			GinkgoHelper()
			return reported.ExpectNow(ctx, deployed.ReactLimit, fmt.Sprintf("expiring %s after its start", timeout), func(i *bergv1.ChallengeInstance) bool {
				return i.Status.ExpiresAt != nil && i.Status.ExpiresAt.Time.Equal(started.Add(timeout))
			})
		}
		expires(20 * time.Minute)
		reported.Patch(ctx, `{"timeout":"3h"}`)
		expires(3 * time.Hour)

		left := 8 * time.Second
		timeout := (time.Since(started) + left).Truncate(time.Second)
		reported.Patch(ctx, `{"timeout":"%ds"}`, int(timeout.Seconds()))
		expiresAt := expires(timeout).Status.ExpiresAt.Time

		end := reported.Expect(ctx, left+deployed.ReactLimit, "deletion", func(m journey.Moment) bool { return m.Instance.DeletionTimestamp != nil })
		Expect(end.At).To(BeTemporally(">=", expiresAt), "ended early")
		Expect(end.At).To(BeTemporally("<=", expiresAt.Add(expiryLimit)), "ended late")
		Expect(end.Instance.Spec.TerminationReason).To(Equal(bergv1.TerminationTimeout))
		AddReportEntry("ended after expiresAt", end.At.Sub(expiresAt).String())

		reported.ExpectEnd(ctx)
		expectInOrder(reported.Phases(), bergv1.PhasePending, bergv1.PhaseCreating, bergv1.PhaseStarting,
			bergv1.PhaseRunning, bergv1.PhaseTerminating, bergv1.PhaseTerminated)
		expect.Until(ctx, deployed.ReactLimit, func(ctx context.Context) error {
			events, err := instanceEvents(ctx, reported)
			if err != nil {
				return err
			}
			for _, e := range events {
				if e.Reason == bergv1.ReasonInstanceEnding {
					return deployed.ErrorIf(e.Message != "Terminating due to Timeout", "the event says "+e.Message)
				}
			}
			return fmt.Errorf("%s has no event %s", reported.Key, bergv1.ReasonInstanceEnding)
		})
	}, SpecTimeout(deployed.SpecLimit))

	It("terminates when a reason is set", func(ctx SpecContext) {
		stage := journey.NewStage(ctx)
		reported := stage.RunToolbox(ctx)
		reported.Patch(ctx, `{"terminationReason":"AdminTermination"}`)
		reported.ExpectEnd(ctx)
		Expect(reported.Now().Spec.TerminationReason).To(Equal(bergv1.TerminationAdmin))
	}, SpecTimeout(deployed.SpecLimit))
})

var _ = Describe("An instance is deleted", func() {
	It("while it waits for its owner's other instance, which continues", func(ctx SpecContext) {
		stage := journey.NewStage(ctx)
		first := stage.RunToolbox(ctx)
		busy := func(name string) *journey.Story {
			GinkgoHelper()
			instance := stage.Instance("toolbox")
			instance.Name, instance.Spec.OwnerID = name, first.OwnerID
			reported := stage.Start(ctx, instance)
			reported.ExpectCondition(ctx, deployed.ReactLimit, bergv1.ConditionNamespaceCreated, metav1.ConditionFalse, bergv1.ReasonOwnerBusy)
			Expect(reported.Now().Status.Phase).To(Equal(bergv1.PhasePending))
			return reported
		}
		second, third := busy("second"), busy("third")
		second.Delete(ctx)
		second.Expect(ctx, deployed.ReactLimit, "end", func(m journey.Moment) bool { return m.Gone })
		Expect(first.Now().Status.Phase).To(Equal(bergv1.PhaseRunning))

		By("leaving the place to the next when the first is gone")
		first.Delete(ctx)
		first.Expect(ctx, deployed.DeleteLimit, "end", func(m journey.Moment) bool { return m.Gone })
		third.ExpectPhase(ctx, deployed.StartLimit, bergv1.PhaseRunning)
	}, SpecTimeout(deployed.SpecLimit))

	It("while it runs", Label("versions"), func(ctx SpecContext) {
		reported := journey.NewStage(ctx).RunToolbox(ctx)
		reported.Delete(ctx)
		reported.ExpectEnd(ctx)
		Expect(reported.Phases()).To(ContainElement(bergv1.PhaseTerminating))
	}, SpecTimeout(deployed.SpecLimit))

	It("while it has failed", func(ctx SpecContext) {
		stage := journey.NewStage(ctx)
		reported := stage.Start(ctx, stage.Instance("missing"))
		reported.ExpectPhase(ctx, deployed.ReactLimit, bergv1.PhaseFailed)
		reported.Delete(ctx)
		reported.ExpectEnd(ctx)
	}, SpecTimeout(deployed.SpecLimit))

	It("while the cluster refuses a part of it", func(ctx SpecContext) {
		stage := journey.NewStage(ctx)
		stage.Challenge(ctx, "toolbox", journey.Toolbox("box"))
		instance := stage.Instance("toolbox")
		refuseDeployments(ctx, stage, "challenge-"+instance.Spec.OwnerID)
		reported := stage.Start(ctx, instance)
		reported.ExpectCondition(ctx, deployed.ReactLimit, bergv1.ConditionDeploymentsCreated, metav1.ConditionFalse, bergv1.ReasonRefused)
		Expect(reported.Now().Status.Phase).To(Equal(bergv1.PhaseCreating))
		reported.Delete(ctx)
		reported.ExpectEnd(ctx)
	}, SpecTimeout(deployed.SpecLimit))

	It("while its image cannot be pulled", func(ctx SpecContext) {
		stage := journey.NewStage(ctx)
		container := journey.Toolbox("box")
		container.Image = "ghcr.io/bergctf/samples/no-such-image:v0.0.0"
		stage.Challenge(ctx, "unpullable", container)
		reported := stage.Start(ctx, stage.Instance("unpullable"))
		reported.ExpectNow(ctx, deployed.StartLimit, "waiting for an image", func(i *bergv1.ChallengeInstance) bool {
			for _, c := range i.Status.Conditions {
				if c.Type == bergv1.ConditionPodsReady && c.Status == metav1.ConditionFalse &&
					(c.Reason == "ErrImagePull" || c.Reason == "ImagePullBackOff") {
					return i.Status.Phase == bergv1.PhaseStarting
				}
			}
			return false
		})
		reported.Delete(ctx)
		reported.ExpectEnd(ctx)
	}, SpecTimeout(deployed.SpecLimit))

	It("while its container crashes", Label("versions"), func(ctx SpecContext) {
		stage := journey.NewStage(ctx)
		container := journey.Toolbox("box")
		container.Environment = map[string]bergv1.EnvironmentValue{"TOOLBOX_EXIT": bergv1.StringValue("3")}
		// Ready never, so that no moment between two crashes counts as ready.
		container.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
			Exec: &corev1.ExecAction{Command: []string{"cat", "/no-such-file"}},
		}}
		stage.Challenge(ctx, "crashing", container)
		reported := stage.Start(ctx, stage.Instance("crashing"))
		reported.ExpectCondition(ctx, deployed.StartLimit, bergv1.ConditionPodsReady, metav1.ConditionFalse, "CrashLoopBackOff")
		Expect(reported.Now().Status.Phase).To(Equal(bergv1.PhaseStarting))
		reported.Delete(ctx)
		reported.ExpectEnd(ctx)
	}, SpecTimeout(deployed.SpecLimit))

	It("as soon as it exists", func(ctx SpecContext) {
		stage := journey.NewStage(ctx)
		stage.Challenge(ctx, "toolbox", journey.Toolbox("box"))
		// Each at another moment of its creation.
		for _, moments := range []int{1, 2, 3, 4} {
			reported := stage.Start(ctx, stage.Instance("toolbox"))
			Eventually(ctx, func() int { return len(reported.Moments()) }).WithTimeout(deployed.ReactLimit).WithPolling(time.Millisecond).Should(
				BeNumerically(">=", moments), "moments reported of %s", reported.Key)
			reported.Delete(ctx)
		}
		for _, reported := range stage.Stories {
			reported.Expect(ctx, deployed.DeleteLimit, "end", func(m journey.Moment) bool { return m.Gone })
			Expect(world.NamespaceGone(ctx, reported.InstanceNamespace())).To(Succeed())
		}
	}, SpecTimeout(deployed.SpecLimit))

	It("twice, while something holds its namespace", func(ctx SpecContext) {
		stage := journey.NewStage(ctx)
		reported := stage.RunToolbox(ctx)
		const finalizer = "e2e.berg.norelect.ch/hold"
		held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name: "held", Namespace: reported.InstanceNamespace(), Finalizers: []string{finalizer},
		}}
		Expect(world.Create(ctx, held)).To(Succeed())
		release := func(ctx context.Context) error {
			return client.IgnoreNotFound(world.Patch(ctx, held, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))))
		}
		DeferCleanup(func(ctx SpecContext) { Expect(release(ctx)).To(Succeed()) }, NodeTimeout(deployed.ReactLimit))

		reported.Delete(ctx)
		reported.ExpectPhase(ctx, deployed.ReactLimit, bergv1.PhaseTerminating)
		reported.Delete(ctx)
		Consistently(ctx, reported.Now).WithTimeout(5 * time.Second).Should(
			HaveField("Status.Phase", bergv1.PhaseTerminating))

		Expect(release(ctx)).To(Succeed())
		reported.ExpectEnd(ctx)
	}, SpecTimeout(deployed.SpecLimit))

	It("although its namespace was deleted by hand, which it survived", func(ctx SpecContext) {
		stage := journey.NewStage(ctx)
		reported := stage.RunToolbox(ctx)
		namespace := &corev1.Namespace{}
		key := client.ObjectKey{Name: reported.InstanceNamespace()}
		Expect(world.Get(ctx, key, namespace)).To(Succeed())
		before := namespace.UID
		Expect(world.Delete(ctx, namespace)).To(Succeed())
		expect.Until(ctx, deployed.DeleteLimit+deployed.StartLimit, func(ctx context.Context) error {
			if err := world.Get(ctx, key, namespace); err != nil {
				return err
			}
			if namespace.UID == before {
				return fmt.Errorf("namespace %s is still the one that was deleted", key.Name)
			}
			return journey.Unhappy(reported.Now())
		})
		reported.Delete(ctx)
		reported.ExpectEnd(ctx)
	}, SpecTimeout(deployed.SpecLimit))
})

// refuseDeployments makes the API server refuse every new Deployment in a
// namespace, as an administrator's policy would.
func refuseDeployments(ctx context.Context, stage *journey.Stage, namespace string) {
	GinkgoHelper()
	const probe = "policy-probe"
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: stage.Namespace + ".berg.norelect.ch"},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: ptr.To(admissionv1.Fail),
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create},
					Rule:       admissionv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"deployments"}},
				},
			}}},
			MatchConditions: []admissionv1.MatchCondition{{
				Name:       "here",
				Expression: fmt.Sprintf("request.namespace == '%s' || (request.namespace == '%s' && request.name == '%s')", namespace, stage.Namespace, probe),
			}},
			Validations: []admissionv1.Validation{{Expression: "false", Message: "no Deployments today"}},
		},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: policy.Name},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName:        policy.Name,
			ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}
	for _, o := range []client.Object{policy, binding} {
		Expect(world.Create(ctx, o)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(world.Delete(ctx, o)).To(Succeed()) }, NodeTimeout(deployed.ReactLimit))
	}
	// The API server takes a policy up some time after it exists.
	expect.Until(ctx, deployed.ReactLimit, func(ctx context.Context) error {
		labels := map[string]string{"app": probe}
		deployment := &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: probe, Namespace: stage.Namespace},
			Spec: appsv1.DeploymentSpec{
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: probe, Image: deployed.ToolboxImage}}},
				},
			},
		}
		return deployed.ErrorIf(world.Create(ctx, deployment, client.DryRunAll) == nil, "the policy is not in force")
	})
}
