package quix

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/quixtest"
)

// kubectl wait, Flux, Argo CD and Helm go by these conditions.
var _ = Describe("The conditions Ready and Stalled of an environment", func() {
	stalled := func(env *quixv1.Environment, reason string) {
		GinkgoHelper()
		now := meta.FindStatusCondition(env.Status.Conditions, quixv1.ConditionStalled)
		Expect(now).NotTo(BeNil())
		Expect(now.Status).To(Equal(metav1.ConditionTrue))
		Expect(now.Reason).To(Equal(reason))
	}

	It("ask for a label to be fixed, and say when the environment is in place", func(ctx context.Context) {
		env := quixtest.Environment(ctx, quixtest.NewID(), func(env *quixv1.Environment) { env.Spec.Labels = map[string]string{"quix.io/a": "not valid"} })
		expect.Shows(ctx, env, quixv1.ConditionReady, metav1.ConditionFalse, quixv1.ReasonNamespaceCreationFailed)
		stalled(env, quixv1.ReasonNamespaceCreationFailed)
		apiserver.Change(ctx, env, func() { env.Spec.Labels = nil })
		expect.Shows(ctx, env, quixv1.ConditionReady, metav1.ConditionTrue, quixv1.ReasonEnvironmentReady)
		Expect(meta.FindStatusCondition(env.Status.Conditions, quixv1.ConditionStalled)).To(BeNil())
	})

	It("ask for what blocks a deletion to be removed", func(ctx context.Context) {
		env := quixtest.Ready(ctx)
		hold := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: env.Spec.ID + "-qdep", Name: "hold", Finalizers: []string{"example.com/hold"}}}
		Expect(k8s.Create(ctx, hold)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { apiserver.RemoveFinalizers(ctx, hold) })
		Expect(k8s.Delete(ctx, env)).To(Succeed())
		expect.Shows(ctx, env, quixv1.ConditionReady, metav1.ConditionFalse, quixv1.ReasonDeletionBlocked)
		stalled(env, quixv1.ReasonDeletionBlocked)
		Expect(env.Status.Message).To(ContainSubstring("example.com/hold"))
	})
})
