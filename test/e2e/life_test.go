package e2e

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
)

// expiryLimit is how late an instance may end. The contract says one second; the
// rest is for the watch to tell us.
const expiryLimit = 1500 * time.Millisecond

var _ = Describe("The life of an instance", func() {
	It("is extended, shortened, and ends on time", func(ctx SpecContext) {
		stage := newStage(ctx)
		told := stage.runToolbox(ctx)
		started := told.now().Status.StartedAt.Time
		expires := func(timeout time.Duration) *bergv1.ChallengeInstance {
			GinkgoHelper()
			return told.expectNow(ctx, reactLimit, fmt.Sprintf("expiring %s after its start", timeout), func(i *bergv1.ChallengeInstance) bool {
				return i.Status.ExpiresAt != nil && i.Status.ExpiresAt.Time.Equal(started.Add(timeout))
			})
		}
		expires(20 * time.Minute)
		told.patch(ctx, `{"timeout":"3h"}`)
		expires(3 * time.Hour)

		left := 8 * time.Second
		timeout := (time.Since(started) + left).Truncate(time.Second)
		told.patch(ctx, `{"timeout":"%ds"}`, int(timeout.Seconds()))
		expiresAt := expires(timeout).Status.ExpiresAt.Time

		end := told.expect(ctx, left+reactLimit, "deletion", func(m moment) bool { return m.instance.DeletionTimestamp != nil })
		Expect(end.at).To(BeTemporally(">=", expiresAt), "ended early")
		Expect(end.at).To(BeTemporally("<=", expiresAt.Add(expiryLimit)), "ended late")
		Expect(end.instance.Spec.TerminationReason).To(Equal(bergv1.TerminationTimeout))
		AddReportEntry("ended after expiresAt", end.at.Sub(expiresAt).String())

		told.expectEnd(ctx)
		expectInOrder(told.phases(), bergv1.PhasePending, bergv1.PhaseCreating, bergv1.PhaseStarting,
			bergv1.PhaseRunning, bergv1.PhaseTerminating, bergv1.PhaseTerminated)
		until(ctx, reactLimit, func(ctx context.Context) error {
			events, err := instanceEvents(ctx, told)
			if err != nil {
				return err
			}
			for _, e := range events {
				if e.Reason == bergv1.ReasonInstanceEnding {
					return not(e.Message != "Terminating due to Timeout", "the event says "+e.Message)
				}
			}
			return fmt.Errorf("%s has no event %s", told.key, bergv1.ReasonInstanceEnding)
		})
	}, SpecTimeout(specLimit))

	It("ends when a reason to terminate is set", func(ctx SpecContext) {
		stage := newStage(ctx)
		told := stage.runToolbox(ctx)
		told.patch(ctx, `{"terminationReason":"AdminTermination"}`)
		told.expectEnd(ctx)
		Expect(told.now().Spec.TerminationReason).To(Equal(bergv1.TerminationAdmin))
	}, SpecTimeout(specLimit))
})

var _ = Describe("An instance is deleted", func() {
	It("while it waits for its owner's other instance, which goes on", func(ctx SpecContext) {
		stage := newStage(ctx)
		first := stage.runToolbox(ctx)
		busy := func(name string) *story {
			GinkgoHelper()
			instance := stage.instance("toolbox")
			instance.Name, instance.Spec.OwnerID = name, first.ownerID
			told := stage.start(ctx, instance)
			told.expectCondition(ctx, reactLimit, bergv1.ConditionNamespaceCreated, metav1.ConditionFalse, bergv1.ReasonOwnerBusy)
			Expect(told.now().Status.Phase).To(Equal(bergv1.PhasePending))
			return told
		}
		second, third := busy("second"), busy("third")
		second.delete(ctx)
		second.expect(ctx, reactLimit, "end", func(m moment) bool { return m.gone })
		Expect(first.now().Status.Phase).To(Equal(bergv1.PhaseRunning))

		By("leaving the place to the next when the first goes")
		first.delete(ctx)
		first.expect(ctx, deleteLimit, "end", func(m moment) bool { return m.gone })
		third.expectPhase(ctx, startLimit, bergv1.PhaseRunning)
	}, SpecTimeout(specLimit))

	It("while it runs", func(ctx SpecContext) {
		told := newStage(ctx).runToolbox(ctx)
		told.delete(ctx)
		told.expectEnd(ctx)
		Expect(told.phases()).To(ContainElement(bergv1.PhaseTerminating))
	}, SpecTimeout(specLimit))

	It("while it has failed", func(ctx SpecContext) {
		stage := newStage(ctx)
		told := stage.start(ctx, stage.instance("missing"))
		told.expectPhase(ctx, reactLimit, bergv1.PhaseFailed)
		told.delete(ctx)
		told.expectEnd(ctx)
	}, SpecTimeout(specLimit))

	It("while the cluster refuses a part of it", func(ctx SpecContext) {
		stage := newStage(ctx)
		stage.challenge(ctx, "toolbox", toolbox("box"))
		instance := stage.instance("toolbox")
		refuseDeployments(ctx, stage, "challenge-"+instance.Spec.OwnerID)
		told := stage.start(ctx, instance)
		told.expectCondition(ctx, reactLimit, bergv1.ConditionDeploymentsCreated, metav1.ConditionFalse, bergv1.ReasonRefused)
		Expect(told.now().Status.Phase).To(Equal(bergv1.PhaseCreating))
		told.delete(ctx)
		told.expectEnd(ctx)
	}, SpecTimeout(specLimit))

	It("while its image cannot be pulled", func(ctx SpecContext) {
		stage := newStage(ctx)
		container := toolbox("box")
		container.Image = "ghcr.io/bergctf/samples/no-such-image:v0.0.0"
		stage.challenge(ctx, "unpullable", container)
		told := stage.start(ctx, stage.instance("unpullable"))
		told.expectNow(ctx, startLimit, "waiting for an image", func(i *bergv1.ChallengeInstance) bool {
			for _, c := range i.Status.Conditions {
				if c.Type == bergv1.ConditionPodsReady && c.Status == metav1.ConditionFalse &&
					(c.Reason == "ErrImagePull" || c.Reason == "ImagePullBackOff") {
					return i.Status.Phase == bergv1.PhaseStarting
				}
			}
			return false
		})
		told.delete(ctx)
		told.expectEnd(ctx)
	}, SpecTimeout(specLimit))

	It("while its container crashes", func(ctx SpecContext) {
		stage := newStage(ctx)
		container := toolbox("box")
		container.Environment = map[string]bergv1.EnvironmentValue{"TOOLBOX_EXIT": bergv1.StringValue("3")}
		// Ready never, so that no moment between two crashes counts as ready.
		container.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
			Exec: &corev1.ExecAction{Command: []string{"cat", "/no-such-file"}},
		}}
		stage.challenge(ctx, "crashing", container)
		told := stage.start(ctx, stage.instance("crashing"))
		told.expectCondition(ctx, startLimit, bergv1.ConditionPodsReady, metav1.ConditionFalse, "CrashLoopBackOff")
		Expect(told.now().Status.Phase).To(Equal(bergv1.PhaseStarting))
		told.delete(ctx)
		told.expectEnd(ctx)
	}, SpecTimeout(specLimit))

	It("as soon as it exists", func(ctx SpecContext) {
		stage := newStage(ctx)
		stage.challenge(ctx, "toolbox", toolbox("box"))
		// Each at another moment of its creation.
		for _, moments := range []int{1, 2, 3, 4} {
			told := stage.start(ctx, stage.instance("toolbox"))
			Eventually(ctx, func() int { return len(told.told()) }).WithTimeout(reactLimit).WithPolling(time.Millisecond).Should(
				BeNumerically(">=", moments), "moments told of %s", told.key)
			told.delete(ctx)
		}
		for _, told := range stage.stories {
			told.expect(ctx, deleteLimit, "end", func(m moment) bool { return m.gone })
			Expect(world.namespaceGone(ctx, told.instanceNamespace())).To(Succeed())
		}
	}, SpecTimeout(specLimit))

	It("twice, while something holds its namespace", func(ctx SpecContext) {
		stage := newStage(ctx)
		told := stage.runToolbox(ctx)
		const finalizer = "e2e.berg.norelect.ch/hold"
		held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name: "held", Namespace: told.instanceNamespace(), Finalizers: []string{finalizer},
		}}
		Expect(world.Create(ctx, held)).To(Succeed())
		release := func(ctx context.Context) error {
			return client.IgnoreNotFound(world.Patch(ctx, held, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))))
		}
		DeferCleanup(func(ctx SpecContext) { Expect(release(ctx)).To(Succeed()) }, NodeTimeout(reactLimit))

		told.delete(ctx)
		told.expectPhase(ctx, reactLimit, bergv1.PhaseTerminating)
		told.delete(ctx)
		Consistently(ctx, told.now).WithTimeout(5 * time.Second).Should(
			HaveField("Status.Phase", bergv1.PhaseTerminating))

		Expect(release(ctx)).To(Succeed())
		told.expectEnd(ctx)
	}, SpecTimeout(specLimit))

	It("although its namespace was deleted by hand, which it survived", func(ctx SpecContext) {
		stage := newStage(ctx)
		told := stage.runToolbox(ctx)
		namespace := &corev1.Namespace{}
		key := client.ObjectKey{Name: told.instanceNamespace()}
		Expect(world.Get(ctx, key, namespace)).To(Succeed())
		before := namespace.UID
		Expect(world.Delete(ctx, namespace)).To(Succeed())
		until(ctx, deleteLimit+startLimit, func(ctx context.Context) error {
			if err := world.Get(ctx, key, namespace); err != nil {
				return err
			}
			if namespace.UID == before {
				return fmt.Errorf("namespace %s is still the one that was deleted", key.Name)
			}
			return unhappy(told.now())
		})
		told.delete(ctx)
		told.expectEnd(ctx)
	}, SpecTimeout(specLimit))
})

// refuseDeployments makes the API server refuse every new Deployment in a
// namespace, as an administrator's policy would.
func refuseDeployments(ctx context.Context, stage *stage, namespace string) {
	GinkgoHelper()
	const probe = "policy-probe"
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: stage.namespace + ".berg.norelect.ch"},
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
				Expression: fmt.Sprintf("request.namespace == '%s' || (request.namespace == '%s' && request.name == '%s')", namespace, stage.namespace, probe),
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
		DeferCleanup(func(ctx SpecContext) { Expect(world.Delete(ctx, o)).To(Succeed()) }, NodeTimeout(reactLimit))
	}
	// The API server takes a policy up some time after it exists.
	until(ctx, reactLimit, func(ctx context.Context) error {
		labels := map[string]string{"app": probe}
		deployment := &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: probe, Namespace: stage.namespace},
			Spec: appsv1.DeploymentSpec{
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: probe, Image: toolboxImage}}},
				},
			},
		}
		return not(world.Create(ctx, deployment, client.DryRunAll) == nil, "the policy is not in force")
	})
}
