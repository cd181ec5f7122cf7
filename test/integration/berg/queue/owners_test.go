package queue

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/limits"
)

var _ = Describe("The instances of one owner", func() {
	It("wait without a poll, and continue the moment that the namespace is gone", func(ctx context.Context) {
		first := bergtest.StartRunning(ctx, "busy", bergtest.OneContainer)
		ns := first.Namespace
		second := bergtest.Instance(ctx, ns, "busy", bergtest.OwnedLike(first))
		bergtest.ExpectWaitingForOwner(ctx, second)
		expect.Says(ctx, second, first.Namespace+"/"+first.Name, "it does not say who holds the namespace")

		By("holding the namespace of the first while it is being deleted")
		release := bergtest.Hold(ctx, first.Status.Namespace)
		Expect(k8s.Delete(ctx, first)).To(Succeed())
		expect.Shows(ctx, first, bergv1.ConditionNamespaceDeleted, metav1.ConditionFalse, bergv1.ReasonDeletionBlocked)
		bergtest.ExpectWaitingForOwner(ctx, second)
		bergtest.Settle(ctx, ns)
		before := reconciles()
		Consistently(reconciles).WithContext(ctx).WithTimeout(3*time.Second).Should(Equal(before), "an instance is reconciled again without a reason")

		By("releasing it")
		w, err := k8s.Watch(ctx, &corev1.NamespaceList{}, client.MatchingFields{"metadata.name": first.Status.Namespace})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(w.Stop)
		all := bergtest.Versions(ctx, second)
		release()
		var gone, started time.Time
		for gone.IsZero() || started.IsZero() {
			select {
			case e := <-w.ResultChan():
				if e.Type == watch.Deleted && gone.IsZero() {
					gone = time.Now()
				}
			case e := <-all:
				if i := e.Object.(*bergv1.ChallengeInstance); i.UID == second.UID && i.Status.StartedAt != nil && started.IsZero() {
					started = time.Now()
				}
			case <-ctx.Done():
				Fail("the second instance does not continue")
			}
		}
		AddReportEntry("hand-over", fmt.Sprintf("the next instance was started %s after the namespace was gone", started.Sub(gone).Round(time.Millisecond)))
		Expect(started.Sub(gone)).To(BeNumerically("<", limits.Immediately))
		expect.Reaches(ctx, second, bergv1.PhaseRunning)
		Expect(second.Status.InstanceID).NotTo(Equal(first.Status.InstanceID))
	})

	It("that are created at the same instant get one namespace, and who has it keeps it over restarts", func(ctx context.Context) {
		ns := bergtest.Publish(ctx, "twins", bergtest.OneContainer)
		const owners, each = 8, 3
		groups := make([][]*bergv1.ChallengeInstance, owners)
		var wg sync.WaitGroup
		for n := range groups {
			groups[n] = make([]*bergv1.ChallengeInstance, each)
			id := uuid.NewString()
			for m := range groups[n] {
				wg.Go(func() {
					defer GinkgoRecover()
					groups[n][m] = bergtest.Instance(ctx, ns, "twins", func(i *bergv1.ChallengeInstance) { i.Spec.OwnerID = id })
				})
			}
		}
		wg.Wait()
		winners := make([]types.UID, owners)
		for n, group := range groups {
			winners[n] = onlyOneRuns(ctx, group)
		}

		By("restarting the operator")
		inprocess.Pause()()
		for n, group := range groups {
			for _, i := range group {
				// A change of the spec shows that the new operator has judged it again.
				apiserver.Change(ctx, i, func() { i.Spec.Timeout = "3h" })
				expect.Observed(ctx, i)
			}
			Expect(onlyOneRuns(ctx, group)).To(Equal(winners[n]))
		}

		By("deleting the first of three: the older of the others follows, then the last")
		group := groups[0]
		for len(group) > 0 {
			holder := slices.IndexFunc(group, func(i *bergv1.ChallengeInstance) bool { return i.Status.Phase == bergv1.PhaseRunning })
			Expect(k8s.Delete(ctx, group[holder])).To(Succeed())
			group = slices.Delete(group, holder, holder+1)
			if len(group) > 0 {
				next := onlyOneRuns(ctx, group)
				Expect(next).To(Equal(slices.MinFunc(group, byAge).UID))
			}
		}
	})

	It("that were all created while no operator ran are built in their order", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		resume := inprocess.Pause()
		bergtest.Challenge(ctx, ns, "order", bergtest.OneContainer)
		var all []*bergv1.ChallengeInstance
		id := uuid.NewString()
		for range 4 {
			all = append(all, bergtest.Instance(ctx, ns, "order", func(i *bergv1.ChallengeInstance) { i.Spec.OwnerID = id }))
		}
		resume()
		Expect(onlyOneRuns(ctx, all)).To(Equal(slices.MinFunc(all, byAge).UID))
	})

	It("that become possible by one event are built in their order", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		id := uuid.NewString()
		var all []*bergv1.ChallengeInstance
		for range 4 {
			all = append(all, bergtest.Instance(ctx, ns, "later", func(i *bergv1.ChallengeInstance) { i.Spec.OwnerID = id }))
		}
		for _, i := range all {
			expect.Reaches(ctx, i, bergv1.PhaseFailed)
		}
		bergtest.Challenge(ctx, ns, "later", bergtest.OneContainer)
		Expect(onlyOneRuns(ctx, all)).To(Equal(slices.MinFunc(all, byAge).UID))
	})

	It("do not wait for one that cannot be built, and do for a failed one that holds the namespace", func(ctx context.Context) {
		ns, elsewhere := bergtest.Namespace(ctx), bergtest.Namespace(ctx)
		c := bergtest.Challenge(ctx, ns, "here", bergtest.OneContainer)
		older := bergtest.Instance(ctx, elsewhere, "missing")
		expect.Reaches(ctx, older, bergv1.PhaseFailed)
		holder := bergtest.Running(ctx, ns, "here", bergtest.OwnedLike(older))

		By("the older one becomes possible and waits for the holder, which lives in another namespace")
		bergtest.Challenge(ctx, elsewhere, "missing", bergtest.OneContainer)
		bergtest.ExpectWaitingForOwner(ctx, older)
		expect.Says(ctx, older, "in another namespace")
		expect.SaysNot(older, ns)

		By("the holder fails: a rollout meets a Service that is not ours")
		foreign := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: holder.Status.Namespace, Name: "db"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}}}
		Expect(k8s.Create(ctx, foreign)).To(Succeed())
		edited := client.MergeFrom(c.DeepCopy())
		c.Spec.Containers = append(c.Spec.Containers, bergv1.Container{Hostname: "db", Image: "example.com/db:1", Ports: []bergv1.Port{{Port: 5432}}})
		Expect(k8s.Patch(ctx, c, edited)).To(Succeed())
		bergtest.RollOut(ctx, holder, "1")
		expect.Shows(ctx, holder, bergv1.ConditionServicesCreated, metav1.ConditionFalse, bergv1.ReasonObjectConflict)
		Expect(holder.Status.Phase).To(Equal(bergv1.PhaseFailed))
		apiserver.Change(ctx, older, func() { older.Spec.Timeout = "3h" })
		expect.Observed(ctx, older)
		bergtest.ExpectWaitingForOwner(ctx, older)

		By("deleting the one that waits: the holder's namespace is not touched")
		var namespace corev1.Namespace
		Expect(k8s.Get(ctx, client.ObjectKey{Name: holder.Status.Namespace}, &namespace)).To(Succeed())
		expect.Deleted(ctx, older)
		untouched(ctx, &namespace)

		By("the holder recovers, ends, and its owner can start again")
		Expect(k8s.Delete(ctx, foreign)).To(Succeed())
		bergtest.RollOut(ctx, holder, "2")
		expect.Reaches(ctx, holder, bergv1.PhaseRunning)
		next := bergtest.Instance(ctx, elsewhere, "missing", bergtest.OwnedLike(holder))
		bergtest.ExpectWaitingForOwner(ctx, next)
		Expect(k8s.Delete(ctx, holder)).To(Succeed())
		expect.Reaches(ctx, next, bergv1.PhaseRunning)
	})
})

var _ = Describe("A namespace that is not the instance's", func() {
	DescribeTable("is left as it is, byte for byte, with all that is in it",
		func(ctx context.Context, modify func(*corev1.Namespace)) {
			ns := bergtest.Publish(ctx, "conflict", bergtest.OneContainer)
			id := uuid.NewString()
			foreign := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: manifests.NamespaceName(id), Labels: map[string]string{}, Annotations: map[string]string{}}}
			modify(foreign)
			Expect(k8s.Create(ctx, foreign)).To(Succeed())
			removeAfterwards(foreign)
			inside := &corev1.Service{
				// As an instance's own would look, but for the proof.
				ObjectMeta: metav1.ObjectMeta{Namespace: foreign.Name, Name: "web", Labels: map[string]string{bergv1.LabelManagedBy: bergv1.ManagedBy}},
				Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}},
			}
			Expect(k8s.Create(ctx, inside)).To(Succeed())
			before := bergtest.BytesOf(ctx, foreign, inside)

			i := bergtest.Instance(ctx, ns, "conflict", func(i *bergv1.ChallengeInstance) { i.Spec.OwnerID = id })
			expect.Reaches(ctx, i, bergv1.PhaseFailed)
			expect.Shows(ctx, i, bergv1.ConditionNamespaceCreated, metav1.ConditionFalse, bergv1.ReasonNamespaceConflict)
			Expect(i.Status.StartedAt).To(BeNil(), "its time runs")
			expect.Event(ctx, i, corev1.EventTypeWarning, bergv1.ReasonNamespaceConflict)
			other := bergtest.Instance(ctx, ns, "conflict", func(i *bergv1.ChallengeInstance) { i.Spec.OwnerID = id })
			expect.Reaches(ctx, other, bergv1.PhaseFailed)

			By("deleting an instance that it is in the way of")
			expect.Deleted(ctx, other)
			Expect(bergtest.BytesOf(ctx, foreign, inside)).To(Equal(before))

			By("removing it: the instance continues")
			Expect(k8s.Delete(ctx, foreign)).To(Succeed())
			expect.Reaches(ctx, i, bergv1.PhaseRunning)
		},
		Entry("of another owner", func(n *corev1.Namespace) { n.Labels["owner"] = "another-team" }),
		Entry("with our labels and no proof", func(n *corev1.Namespace) {
			n.Labels[bergv1.LabelManagedBy], n.Labels[bergv1.LabelComponent] = bergv1.ManagedBy, bergv1.ComponentNamespace
		}),
		Entry("of an instance that was removed by force", func(n *corev1.Namespace) {
			n.Labels[bergv1.LabelManagedBy] = bergv1.ManagedBy
			n.Annotations[bergv1.AnnotationInstanceUID] = uuid.NewString()
		}),
	)
})

// onlyOneRuns waits until one instance of an owner runs and all others wait, and
// returns the one.
func onlyOneRuns(ctx context.Context, all []*bergv1.ChallengeInstance) types.UID {
	GinkgoHelper()
	var runs types.UID
	Eventually(func(g Gomega) {
		var running, waiting int
		for _, i := range all {
			g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(i), i)).To(Succeed())
			switch {
			case i.Status.Phase == bergv1.PhaseRunning:
				running, runs = running+1, i.UID
			case bergtest.ReasonOf(i, bergv1.ConditionNamespaceCreated) == bergv1.ReasonOwnerBusy:
				waiting++
				g.Expect(i.Status.StartedAt).To(BeNil(), "the time of one that waits runs")
			}
		}
		g.Expect([]int{running, waiting}).To(Equal([]int{1, len(all) - 1}))
	}).Should(Succeed())
	return runs
}

func byAge(a, b *bergv1.ChallengeInstance) int {
	if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
		return c
	}
	if a.UID < b.UID {
		return -1
	}
	return 1
}

// untouched checks that a namespace is as it was.
func untouched(ctx context.Context, ns *corev1.Namespace) {
	GinkgoHelper()
	var after corev1.Namespace
	Expect(k8s.Get(ctx, client.ObjectKeyFromObject(ns), &after)).To(Succeed())
	Expect(after.ResourceVersion).To(Equal(ns.ResourceVersion), "the namespace was touched")
}

var _ = Describe("An owner ID belongs to the platform:", func() {
	It("an instance of another namespace that has it ends for the platform's, and does not come before it", func(ctx context.Context) {
		platform := bergtest.Publish(ctx, "wanted", bergtest.OneContainer)
		inprocess.Restart(map[string]string{"CHALLENGE_NAMESPACE": platform}, nil)
		stranger := bergtest.StartRunning(ctx, "squatter", bergtest.OneContainer)
		again := bergtest.Instance(ctx, stranger.Namespace, "squatter", bergtest.OwnedLike(stranger))
		bergtest.ExpectWaitingForOwner(ctx, again)

		player := bergtest.Instance(ctx, platform, "wanted", bergtest.OwnedLike(stranger))
		expect.Reaches(ctx, player, bergv1.PhaseRunning)
		expect.Gone(ctx, stranger)
		bergtest.ExpectWaitingForOwner(ctx, again)
		expect.Event(ctx, stranger, corev1.EventTypeWarning, bergv1.ReasonOwnerBusy)

		By("the other way round nothing ends")
		late := bergtest.Instance(ctx, stranger.Namespace, "squatter", bergtest.OwnedLike(stranger))
		bergtest.ExpectWaitingForOwner(ctx, late)
		Consistently(func(g Gomega) {
			g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(player), player)).To(Succeed())
			g.Expect(player.Status.Phase).To(Equal(bergv1.PhaseRunning))
		}).WithTimeout(2 * time.Second).Should(Succeed())
	})
})
