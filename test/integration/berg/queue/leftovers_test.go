package queue

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
)

// The watches of two kinds are not of the same moment: one may be late, while another tells
// already that the namespace of the owner's former instance is gone.
var _ = Describe("What an owner's former instance has left in a cache", func() {
	DescribeTable("is not taken for the next one's", func(ctx context.Context, watched string) {
		watch := &late{path: watched, open: make(chan struct{})}
		close(watch.open)
		inprocess.Instead(clock.RealClock{}, nil, watch.wrap)
		former := bergtest.StartRunning(ctx, "former", bergtest.OneContainer)

		By("deleting it, which that watch does not tell")
		watch.close()
		DeferCleanup(watch.letThrough)
		bergtest.Delete(ctx, former)

		By("starting the next one")
		next := bergtest.Instance(ctx, former.Namespace, "former", func(i *bergv1.ChallengeInstance) { i.Spec.OwnerID = former.Spec.OwnerID })
		Eventually(func(g Gomega) {
			ns := &corev1.Namespace{}
			g.Expect(k8s.Get(ctx, client.ObjectKey{Name: manifests.NamespaceName(next.Spec.OwnerID)}, ns)).To(Succeed())
			g.Expect(ns.Annotations).To(HaveKeyWithValue(bergv1.AnnotationInstanceUID, string(next.UID)))
		}).Should(Succeed())
		Consistently(func(g Gomega) {
			g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(next), next)).To(Succeed())
			g.Expect(next.Status.Phase).NotTo(BeElementOf(bergv1.PhaseRunning, bergv1.PhaseFailed), expect.Conditions(next))
			for _, c := range next.Status.Conditions {
				g.Expect(c.Reason).NotTo(Equal(bergv1.ReasonObjectConflict), expect.Conditions(next))
			}
		}).WithTimeout(3 * time.Second).Should(Succeed())

		By("letting it tell")
		watch.letThrough()
		expect.Reaches(ctx, next, bergv1.PhaseRunning)
		Expect(meta.IsStatusConditionTrue(next.Status.Conditions, bergv1.ConditionPodsReady)).To(BeTrue(), expect.Conditions(next))
	},
		Entry("its pods", "/api/v1/pods"),
		Entry("its Services", "/api/v1/services"),
		Entry("its Deployments", "/apis/apps/v1/deployments"),
	)
})
