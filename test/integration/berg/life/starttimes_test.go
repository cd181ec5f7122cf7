package life

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/transport"
)

var _ = Describe("Where the time of a start went", func() {
	It("is recorded in order, by the writes that a start has anyway, and counted once", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		bergtest.Challenge(ctx, ns, "slow", bergtest.Misbehaving("slow")) // it is ready five seconds after it was scheduled
		owner := uuid.NewString()
		var writes atomic.Int64
		inprocess.Instead(clock.RealClock{}, nil, transport.Showing(func(r *http.Request) {
			if r.Method != http.MethodGet && strings.HasSuffix(r.URL.Path, "/challengeinstances/"+owner+"/status") {
				writes.Add(1)
			}
		}))
		const stages = "berg_challengeinstance_start_stage_seconds"
		before := inprocess.Metric(stages, "stage", "ready")
		i := bergtest.Instance(ctx, ns, "slow", bergtest.OwnedBy(owner), bergtest.NamedAfterOwner)
		all := bergtest.Versions(ctx, i)
		expect.Reaches(ctx, i, bergv1.PhaseStarting)
		Expect(i.Status.Cause).To(Equal(bergv1.CauseNotReadyYet))
		Expect(i.Status.Start).NotTo(BeNil())
		Expect(i.Status.Start.NamespaceCreatedAt).NotTo(BeNil())
		Expect(i.Status.Start.ObjectsWrittenAt).NotTo(BeNil())
		Expect(i.Status.Start.PodsReadyAt).To(BeNil())
		first := i.Status.Start.DeepCopy()

		expect.Reaches(ctx, i, bergv1.PhaseRunning)
		s := i.Status.Start
		Expect(s.NamespaceCreatedAt).To(Equal(first.NamespaceCreatedAt))
		Expect(s.ObjectsWrittenAt).To(Equal(first.ObjectsWrittenAt))
		last := i.Status.StartedAt.Time
		for stage, at := range []*metav1.MicroTime{s.NamespaceCreatedAt, s.ObjectsWrittenAt, s.ScheduledAt, s.ImagesPulledAt, s.ContainersStartedAt, s.PodsReadyAt} {
			Expect(at).NotTo(BeNil(), "stage %d: %+v", stage, s)
			Expect(at.Time.Before(last)).To(BeFalse(), "stage %d: %+v", stage, s)
			last = at.Time
		}
		Expect(s.ContainersStartedAt.Sub(s.ScheduledAt.Time)).To(BeNumerically(">", 3*time.Second), "that it was slow is shown nowhere")
		Expect(i.Status.Cause).To(BeEmpty())
		// It is counted after it was written.
		Eventually(func() float64 { return inprocess.Metric(stages, "stage", "ready") - before }).Should(BeEquivalentTo(1))

		By("three writes: begun, built, ready")
		Consistently(writes.Load).WithTimeout(2 * time.Second).Should(BeEquivalentTo(3))
		var former *bergv1.ChallengeInstance
		for former == nil || former.Status.Phase != bergv1.PhaseRunning {
			var e watch.Event
			Eventually(all).Should(Receive(&e))
			next, ok := e.Object.(*bergv1.ChallengeInstance)
			if !ok || next.UID != i.UID {
				continue
			}
			if former != nil && !equality.Semantic.DeepEqual(former.Status.Start, next.Status.Start) {
				without := next.Status.DeepCopy()
				without.Start = former.Status.Start
				Expect(*without).NotTo(Equal(former.Status), "times were written alone")
			}
			former = next
		}

		By("an operator that comes after it")
		bergtest.Behave(ctx, i, "not-ready")
		expect.Shows(ctx, i, bergv1.ConditionHealthy, metav1.ConditionFalse, bergv1.ReasonPodsNotReady)
		Expect(i.Status.Cause).To(BeEmpty())
		inprocess.Instead(clock.RealClock{}, nil, nil)
		bergtest.Behave(ctx, i, "ready")
		expect.Shows(ctx, i, bergv1.ConditionHealthy, metav1.ConditionTrue, bergv1.ReasonReady)
		Expect(i.Status.Start).To(Equal(s), "a later attempt is not part of the start")
		Expect(inprocess.Metric(stages, "stage", "ready") - before).To(BeEquivalentTo(1))
	})
})

var _ = Describe("Why an instance does not run", func() {
	DescribeTable("is given in one word until it does", func(ctx context.Context, want bergv1.Cause, begin func(context.Context) (*bergv1.ChallengeInstance, func())) {
		i, end := begin(ctx)
		saysCause(ctx, i, want)
		if end != nil {
			end()
			expect.Reaches(ctx, i, bergv1.PhaseRunning)
			Expect(i.Status.Cause).To(BeEmpty())
			Expect(i.Status.Start.PodsReadyAt).NotTo(BeNil())
		}
		bergtest.Delete(ctx, i)
	},
		Entry("its probe fails", bergv1.CauseNotReadyYet, misbehaves("not-ready")),
		Entry("its image cannot be pulled", bergv1.CauseImageUnavailable, misbehaves("image-pull")),
		Entry("it crashes", bergv1.CauseCrashing, misbehaves("crash")),
		Entry("no node has room", bergv1.CauseNoCapacity, func(ctx context.Context) (*bergv1.ChallengeInstance, func()) {
			ns := bergtest.Publish(ctx, "huge", bergtest.NeverReady)
			return bergtest.Instance(ctx, ns, "huge"), nil
		}),
		Entry("its pods are refused", bergv1.CauseRefused, func(ctx context.Context) (*bergv1.ChallengeInstance, func()) {
			ns := bergtest.Publish(ctx, "refused", `containers: [{hostname: web, image: "example.com/web:1", runtimeClassName: missing-cause}]`)
			return bergtest.Instance(ctx, ns, "refused"), func() { runtimeClass(ctx, "missing-cause") }
		}),
		Entry("a Service is refused", bergv1.CauseRefused, func(ctx context.Context) (*bergv1.ChallengeInstance, func()) {
			ns := bergtest.Namespace(ctx)
			owner := uuid.NewString()
			lift := bergtest.Refuse(ctx, owner, "", "services", "CREATE")
			bergtest.Challenge(ctx, ns, "without-service", bergtest.OneContainer)
			return bergtest.Instance(ctx, ns, "without-service", bergtest.OwnedBy(owner)), lift
		}),
		Entry("no address is allotted", bergv1.CauseAddressPending, func(ctx context.Context) (*bergv1.ChallengeInstance, func()) {
			ns := bergtest.Namespace(ctx)
			owner := uuid.NewString()
			var over atomic.Bool
			inprocess.Instead(clock.RealClock{}, nil, transport.Through(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
				if !over.Load() && r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/challenge-"+owner+"/services") {
					return nil, http.ErrServerClosed
				}
				return next.RoundTrip(r)
			}))
			bergtest.Challenge(ctx, ns, "unreachable", bergtest.OneContainer)
			return bergtest.Instance(ctx, ns, "unreachable", bergtest.OwnedBy(owner)), func() { over.Store(true) }
		}),
		Entry("an earlier one of its owner lives", bergv1.CauseOwnerBusy, func(ctx context.Context) (*bergv1.ChallengeInstance, func()) {
			earlier := bergtest.StartRunning(ctx, "busy", bergtest.OneContainer)
			ns := earlier.Namespace
			return bergtest.Instance(ctx, ns, "busy", bergtest.OwnedBy(earlier.Spec.OwnerID)), func() { Expect(k8s.Delete(ctx, earlier)).To(Succeed()) }
		}),
		Entry("its Challenge is frozen", bergv1.CauseFrozen, func(ctx context.Context) (*bergv1.ChallengeInstance, func()) {
			ns := bergtest.Namespace(ctx)
			c := bergtest.Challenge(ctx, ns, "frozen-cause", bergtest.OneContainer, bergtest.Frozen)
			return bergtest.Instance(ctx, ns, "frozen-cause"), func() { apiserver.Change(ctx, c, func() { c.Annotations = nil }) }
		}),
		Entry("there is no such Challenge", bergv1.CauseInvalid, func(ctx context.Context) (*bergv1.ChallengeInstance, func()) {
			ns := bergtest.Namespace(ctx)
			return bergtest.Instance(ctx, ns, "not-yet"), func() { bergtest.Challenge(ctx, ns, "not-yet", bergtest.OneContainer) }
		}),
	)

	It("is that it crashes also between two attempts, which is written once", func(ctx context.Context) {
		i := unready(ctx)
		end := corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 3, StartedAt: metav1.Now(), FinishedAt: metav1.Now()}
		attempts := func(restarts int32, state corev1.ContainerState) {
			setPods(ctx, i, func(p *corev1.Pod) {
				for n := range p.Status.ContainerStatuses {
					s := &p.Status.ContainerStatuses[n]
					s.RestartCount, s.State, s.LastTerminationState = restarts, state, corev1.ContainerState{Terminated: &end}
				}
			})
		}
		waits := func(long string) corev1.ContainerState {
			return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off " + long + " restarting failed container"}}
		}
		runs := func() corev1.ContainerState {
			return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
		}
		attempts(1, waits("10s"))
		saysCause(ctx, i, bergv1.CauseCrashing)
		expectFalse(ctx, i, bergv1.ConditionPodsReady, "CrashLoopBackOff", "exit code 3")
		version := i.ResourceVersion
		unwritten := func() {
			GinkgoHelper()
			Consistently(func(g Gomega) {
				g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(i), i)).To(Succeed())
				g.Expect(i.ResourceVersion).To(Equal(version), expect.Conditions(i))
			}).WithTimeout(time.Second).Should(Succeed())
		}
		for restarts := range int32(3) {
			attempts(restarts+2, runs())
			unwritten()
			attempts(restarts+2, waits("20s"))
			unwritten()
		}

		By("and its last attempt succeeds")
		bergtest.Behave(ctx, i, "ready")
		expect.Reaches(ctx, i, bergv1.PhaseRunning)
		Expect(i.Status.Cause).To(BeEmpty())
		Expect(i.Status.Start.ContainersStartedAt.Sub(i.Status.Start.ImagesPulledAt.Time)).To(BeNumerically(">=", 4*time.Second), "the time of the attempts: %+v", i.Status.Start)
	})
})

// misbehaves starts an instance whose pod misbehaves until end is called.
func misbehaves(how string) func(context.Context) (*bergv1.ChallengeInstance, func()) {
	return func(ctx context.Context) (i *bergv1.ChallengeInstance, end func()) {
		GinkgoHelper()
		ns := bergtest.Publish(ctx, how, bergtest.Misbehaving(how))
		i = bergtest.Instance(ctx, ns, how)
		expect.Reaches(ctx, i, bergv1.PhaseStarting)
		if how == "image-pull" {
			return i, nil
		}
		return i, func() { bergtest.Behave(ctx, i, "ready") }
	}
}

// saysCause waits until an instance says why it does not run.
func saysCause(ctx context.Context, i *bergv1.ChallengeInstance, want bergv1.Cause) {
	GinkgoHelper()
	expect.Becomes(ctx, i, func(g Gomega) {
		g.Expect(i.Status.Cause).To(Equal(want), "%s, conditions: %s", i.Status.Phase, expect.Conditions(i))
	})
}
