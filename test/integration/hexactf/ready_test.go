package hexactf

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/hexactftest"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
)

// kubectl wait, Flux, Argo CD and Helm go by these conditions.
var _ = Describe("The conditions Ready and Stalled of a challenge", func() {
	ready := func(ctx context.Context, c *hexactfv1.Challenge, status metav1.ConditionStatus, reason string, stalled bool) {
		GinkgoHelper()
		expect.Shows(ctx, c, hexactfv1.ConditionReady, status, reason)
		now := meta.FindStatusCondition(c.Status.Conditions, hexactfv1.ConditionStalled)
		if !stalled {
			Expect(now).To(BeNil())
			return
		}
		Expect(now).NotTo(BeNil())
		Expect(now.Status).To(Equal(metav1.ConditionTrue))
		Expect(now.Reason).To(Equal(reason))
		Expect(now.Message).NotTo(BeEmpty())
	}

	It("ask for a definition that is missing, and say when the challenge runs", func(ctx context.Context) {
		ns := hexactftest.Namespace(ctx)
		c := hexactftest.Challenge(ctx, ns, "late")
		ready(ctx, c, metav1.ConditionFalse, hexactfv1.ReasonDefinitionNotFound, true)
		hexactftest.Definition(ctx, ns, "late", hexactftest.OneComponent)
		ready(ctx, c, metav1.ConditionTrue, hexactfv1.ReasonAvailable, false)
		Expect(c.Status.CurrentStatus.State).To(Equal(hexactfv1.StateRunning))
	})

	It("ask for an object of another owner to be deleted, also while the challenge runs", func(ctx context.Context) {
		ns := hexactftest.Define(ctx, "web", hexactftest.OneComponent)
		c := running(ctx, ns, "web")
		ready(ctx, c, metav1.ConditionTrue, hexactfv1.ReasonAvailable, false)
		resume := inprocess.Pause()
		deployment := get(ctx, ns, prefix(c, "web")+"-deploy", &appsv1.Deployment{})
		expect.Deleted(ctx, deployment)
		conflicting := &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: deployment.Name, Labels: map[string]string{"owner": "another"}},
			Spec:       deployment.Spec,
		}
		Expect(k8s.Create(ctx, conflicting)).To(Succeed())
		resume()
		ready(ctx, c, metav1.ConditionFalse, hexactfv1.ReasonOwnershipConflict, true)
		Expect(c.Status.CurrentStatus.State).To(Equal(hexactfv1.StateRunning))
		Expect(k8s.Delete(ctx, conflicting)).To(Succeed())
		ready(ctx, c, metav1.ConditionTrue, hexactfv1.ReasonAvailable, false)
	})

	It("ask for nothing while a challenge starts or is deleted, and for a person after the start deadline", func(ctx context.Context) {
		inprocess.Restart(map[string]string{"HEXACTF_START_DEADLINE": "6s"}, nil)
		ns := hexactftest.Namespace(ctx)
		hexactftest.Definition(ctx, ns, "no-image", hexactftest.OneComponent, func(s *hexactfv1.ChallengeDefinitionSpec) {
			s.Components[0].Deployment.Spec.Template.Spec.Containers[0].Image = "berg.test/behaviour/image-pull"
		})
		c := hexactftest.Challenge(ctx, ns, "no-image")
		hexactftest.Reaches(ctx, c, hexactfv1.StateCreating)
		Expect(meta.IsStatusConditionFalse(c.Status.Conditions, hexactfv1.ConditionReady)).To(BeTrue())
		Expect(meta.FindStatusCondition(c.Status.Conditions, hexactfv1.ConditionStalled)).To(BeNil())
		ready(ctx, c, metav1.ConditionFalse, hexactfv1.ReasonStartDeadlineExceeded, true)
		apiserver.Change(ctx, c, func() { c.Finalizers = append(c.Finalizers, "example.com/hold") })
		release := func(ctx context.Context) error {
			return client.IgnoreNotFound(k8s.Patch(ctx, c, apiserver.RawPatch(`{"metadata":{"finalizers":null}}`)))
		}
		DeferCleanup(release)
		hexactftest.Delete(ctx, c)
		ready(ctx, c, metav1.ConditionFalse, hexactfv1.ReasonTerminating, false)
		Expect(release(ctx)).To(Succeed())
		expect.Gone(ctx, c)
	})
})
