package life

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
)

var _ = Describe("An image that is pulled at every start", func() {
	It("is compared with that of newer instances, also after a restart of the operator, and a rollout adopts it", func(ctx context.Context) {
		ns := bergtest.Publish(ctx, "moving", `containers: [{hostname: web, image: "example.com/web:latest", imagePullPolicy: Always, ports: [{port: 8080}]}]`)
		runs := func(i *bergv1.ChallengeInstance, digest string, since time.Time) {
			GinkgoHelper()
			untilPods(ctx, i, corev1.PodRunning)
			setPods(ctx, i, func(p *corev1.Pod) {
				p.Status.ContainerStatuses[0].ImageID = "example.com/web@sha256:" + strings.Repeat(digest, 64)
				p.Status.ContainerStatuses[0].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(since)}}
			})
		}
		start := func() *bergv1.ChallengeInstance {
			GinkgoHelper()
			i := bergtest.Running(ctx, ns, "moving")
			return i
		}
		older, same := start(), start()
		began := time.Now().Add(-time.Hour)
		runs(older, "a", began)
		runs(same, "a", began.Add(time.Minute))
		expect.Shows(ctx, same, bergv1.ConditionUpToDate, metav1.ConditionTrue, bergv1.ReasonUpToDate)

		By("another image under the same tag")
		newer := start()
		runs(newer, "b", began.Add(2*time.Minute))
		expect.Shows(ctx, older, bergv1.ConditionUpToDate, metav1.ConditionFalse, bergv1.ReasonImageChanged)
		expect.Shows(ctx, same, bergv1.ConditionUpToDate, metav1.ConditionFalse, bergv1.ReasonImageChanged)
		expect.Shows(ctx, newer, bergv1.ConditionUpToDate, metav1.ConditionTrue, bergv1.ReasonUpToDate)

		By("a restart of the operator")
		inprocess.Restart(nil, nil)
		expect.Shows(ctx, newer, bergv1.ConditionUpToDate, metav1.ConditionTrue, bergv1.ReasonUpToDate)
		expect.Shows(ctx, same, bergv1.ConditionUpToDate, metav1.ConditionFalse, bergv1.ReasonImageChanged)

		By("a rollout")
		before := podUIDs(ctx, older)
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(older), older)).To(Succeed())
		patch := client.MergeFrom(older.DeepCopy())
		metav1.SetMetaDataAnnotation(&older.ObjectMeta, bergv1.AnnotationRollout, "1")
		Expect(k8s.Patch(ctx, older, patch)).To(Succeed())
		Eventually(func() []string { return podUIDs(ctx, older) }).ShouldNot(Or(BeEmpty(), Equal(before)), "its pod is not replaced")
		expect.Shows(ctx, older, bergv1.ConditionUpToDate, metav1.ConditionTrue, bergv1.ReasonUpToDate)
		runs(older, "b", began.Add(3*time.Minute))
		expect.Shows(ctx, older, bergv1.ConditionUpToDate, metav1.ConditionTrue, bergv1.ReasonUpToDate)
		expect.Shows(ctx, same, bergv1.ConditionUpToDate, metav1.ConditionFalse, bergv1.ReasonImageChanged)
	})
})

// podUIDs returns those of the pods of an instance that are not being deleted.
func podUIDs(ctx context.Context, i *bergv1.ChallengeInstance) (uids []string) {
	GinkgoHelper()
	pods := apiserver.List[corev1.PodList](ctx, client.InNamespace(i.Status.Namespace))
	for _, p := range pods.Items {
		if p.DeletionTimestamp == nil {
			uids = append(uids, string(p.UID))
		}
	}
	return uids
}
