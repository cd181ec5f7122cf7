package queue

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/transport"
)

var _ = Describe("A finalizer that is removed by hand", func() {
	It("is put back, of an instance that runs, of one that waits and of one that failed", func(ctx context.Context) {
		runs := bergtest.StartRunning(ctx, "free", bergtest.OneContainer)
		ns := runs.Namespace
		waiting := bergtest.Instance(ctx, ns, "free", bergtest.OwnedLike(runs))
		bergtest.ExpectWaitingForOwner(ctx, waiting)
		failed := bergtest.Instance(ctx, ns, "none")
		expect.Reaches(ctx, failed, bergv1.PhaseFailed)
		for _, i := range []*bergv1.ChallengeInstance{runs, waiting, failed} {
			apiserver.RemoveFinalizers(ctx, i)
			expect.Finalizer(ctx, i, bergv1.Finalizer)
		}
	})
})

var _ = Describe("A namespace that has outlived its instance", func() {
	It("is reported, and stays", func(ctx context.Context) {
		ns := bergtest.Publish(ctx, "left", bergtest.OneContainer)
		left, resume := orphan(ctx, ns, "left")
		before := bergtest.BytesOf(ctx, left)
		resume()
		Eventually(orphaned).Should(Equal(1))

		By("telling its owner's next instance what blocks it")
		next := bergtest.Instance(ctx, ns, "left", func(i *bergv1.ChallengeInstance) {
			i.Spec.OwnerID = strings.TrimPrefix(left.Name, manifests.NamespacePrefix)
		})
		expect.Shows(ctx, next, bergv1.ConditionNamespaceCreated, metav1.ConditionFalse, bergv1.ReasonNamespaceConflict)
		Expect(expect.Conditions(next)).To(And(ContainSubstring(left.Annotations[bergv1.AnnotationInstance]), ContainSubstring("left behind"), ContainSubstring("ORPHAN_GRACE_PERIOD")))
		Consistently(func(g Gomega) { g.Expect(bergtest.BytesOf(ctx, left)).To(Equal(before)) }).WithTimeout(3 * time.Second).Should(Succeed())

		By("deleting it: the instance continues")
		Expect(k8s.Delete(ctx, left)).To(Succeed())
		expect.Reaches(ctx, next, bergv1.PhaseRunning)
		Eventually(orphaned).Should(BeZero())
	})

	It("is deleted after the grace period, and nothing else is", func(ctx context.Context) {
		lives := bergtest.StartRunning(ctx, "left", bergtest.OneContainer)
		ns := lives.Namespace
		var foreign []*corev1.Namespace
		for _, spoil := range []func(*corev1.Namespace){
			func(n *corev1.Namespace) { delete(n.Labels, bergv1.LabelManagedBy) },
			func(n *corev1.Namespace) { delete(n.Labels, bergv1.LabelComponent) },
			func(n *corev1.Namespace) { delete(n.Annotations, bergv1.AnnotationInstanceUID) },
			func(n *corev1.Namespace) { n.Name = "my-" + n.Name },
		} {
			n := lookingOurs(uuid.NewString(), types.UID(uuid.NewString()))
			spoil(n)
			Expect(k8s.Create(ctx, n)).To(Succeed())
			removeAfterwards(n)
			foreign = append(foreign, n)
		}
		left, _ := orphan(ctx, ns, "left")
		const grace = 5 * time.Second
		began := time.Now()
		inprocess.Restart(map[string]string{"ORPHAN_GRACE_PERIOD": grace.String()}, nil)
		Eventually(orphaned).Should(Equal(1))
		next := bergtest.Instance(ctx, ns, "left", func(i *bergv1.ChallengeInstance) {
			i.Spec.OwnerID = strings.TrimPrefix(left.Name, manifests.NamespacePrefix)
		})
		expect.Reaches(ctx, next, bergv1.PhaseRunning)
		Expect(time.Since(began)).To(BeNumerically(">=", grace))
		Expect(next.Status.StartedAt.Sub(began)).To(BeNumerically(">=", grace-time.Second), "startedAt has no fractions")
		Eventually(orphaned).Should(BeZero())
		for _, n := range append(foreign, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: lives.Status.Namespace}}) {
			Expect(k8s.Get(ctx, client.ObjectKeyFromObject(n), n)).To(Succeed())
			Expect(n.DeletionTimestamp).To(BeNil())
		}
	})

	It("is kept while the API server does not tell which instances there are", func(ctx context.Context) {
		ns := bergtest.Publish(ctx, "left", bergtest.OneContainer)
		left, _ := orphan(ctx, ns, "left")
		var refusals atomic.Int32
		var answers atomic.Bool
		inprocess.Restart(map[string]string{"ORPHAN_GRACE_PERIOD": "1s"}, transport.Through(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			pages := r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/challengeinstances") && r.URL.Query().Get("limit") == "100"
			if pages && !answers.Load() {
				refusals.Add(1)
				return nil, io.ErrUnexpectedEOF
			}
			return next.RoundTrip(r)
		}))
		Eventually(refusals.Load).Should(BeNumerically(">=", 2))
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(left), left)).To(Succeed())
		Expect(left.DeletionTimestamp).To(BeNil())
		answers.Store(true)
		Eventually(func() error { return k8s.Get(ctx, client.ObjectKeyFromObject(left), left) }).Should(MatchError(apierrors.IsNotFound, "IsNotFound"))
	})

	It("is kept if it only seems so to an operator whose view of the instances is late", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		gate := &late{path: "/challengeinstances", open: make(chan struct{})}
		close(gate.open)
		inprocess.Restart(map[string]string{"ORPHAN_GRACE_PERIOD": "1s"}, gate.wrap)
		gate.close()
		DeferCleanup(gate.letThrough)
		// As another replica has made it, which led until now.
		i := bergtest.Instance(ctx, ns, "none")
		made := lookingOurs(i.Spec.OwnerID, i.UID)
		Expect(k8s.Create(ctx, made)).To(Succeed())
		removeAfterwards(made)
		Eventually(orphaned).Should(Equal(1))
		Eventually(gate.asked).Should(BeNumerically(">=", 2), "it does not ask the API server")
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(made), made)).To(Succeed())
		Expect(made.DeletionTimestamp).To(BeNil())

		gate.letThrough()
		Eventually(orphaned).Should(BeZero())
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(made), made)).To(Succeed())
		Expect(made.DeletionTimestamp).To(BeNil())
	})
})

// orphan returns the namespace of an instance that was removed while no operator ran. None
// does until resume is called.
func orphan(ctx context.Context, ns, challenge string) (left *corev1.Namespace, resume func()) {
	GinkgoHelper()
	i := bergtest.Running(ctx, ns, challenge)
	resume = inprocess.Pause()
	apiserver.RemoveFinalizers(ctx, i)
	expect.Deleted(ctx, i)
	left = &corev1.Namespace{}
	Expect(k8s.Get(ctx, client.ObjectKey{Name: i.Status.Namespace}, left)).To(Succeed())
	removeAfterwards(left)
	return left, resume
}

// lookingOurs is a namespace as the operator makes it for an instance.
func lookingOurs(ownerID string, instance types.UID) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name:        manifests.NamespaceName(ownerID),
		Labels:      map[string]string{bergv1.LabelManagedBy: bergv1.ManagedBy, bergv1.LabelComponent: bergv1.ComponentNamespace},
		Annotations: map[string]string{bergv1.AnnotationInstanceUID: string(instance), bergv1.AnnotationInstance: "somewhere/else"},
	}}
}

// orphaned is the gauge of orphans; -1 when there is none.
func orphaned() int {
	families, err := metrics.Registry.Gather()
	Expect(err).NotTo(HaveOccurred())
	for _, f := range families {
		if f.GetName() == "berg_challengeinstance_orphaned_namespaces" {
			return int(f.GetMetric()[0].GetGauge().GetValue())
		}
	}
	return -1
}
