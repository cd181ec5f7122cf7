package life

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/transport"
)

// What administrators do before a maintenance: an admission policy refuses what the
// operator wants to write of the instances themselves.
var _ = Describe("A freeze of instances", func() {
	const updates, statuses = "challengeinstances", "challengeinstances/status"
	later := func() clock.PassiveClock { return clocktesting.NewFakePassiveClock(time.Now().Add(3 * time.Hour)) }

	DescribeTable("keeps none that has expired, and its termination is reported and counted once",
		func(ctx context.Context, frozen ...string) {
			i := bergtest.StartRunning(ctx, "frozen", bergtest.OneContainer)
			ns := i.Namespace
			before := inprocess.Metric("berg_challengeinstance_timeouts_total")
			inprocess.Pause()
			lift := freeze(ctx, ns, "UPDATE", frozen...)
			inprocess.Instead(later(), nil, nil)
			Eventually(func() bool { return bergtest.NamespaceExists(ctx, i) }).Should(BeFalse(), "its pods run on")
			saysWhy(ctx, i, "Terminating due to Timeout")
			Eventually(func() float64 { return inprocess.Metric("berg_challengeinstance_timeouts_total") - before }).Should(BeEquivalentTo(1))

			lift()
			bergtest.Gone(ctx, i)
			Expect(inprocess.Metric("berg_challengeinstance_timeouts_total")-before).To(BeEquivalentTo(1), "it was counted again")
		},
		Entry("of the resource", updates),
		Entry("of the status", statuses),
		Entry("of both", updates, statuses),
	)

	It("of the status keeps no instance that is gone", func(ctx context.Context) {
		i := bergtest.StartRunning(ctx, "kept", bergtest.OneContainer)
		ns := i.Namespace
		freeze(ctx, ns, "UPDATE", statuses)
		bergtest.Delete(ctx, i)
		saysWhy(ctx, i, "Terminating due to UserRequest")
	})

	It("keeps none whose Challenge is withdrawn", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		c := bergtest.Challenge(ctx, ns, "withdrawn", bergtest.OneContainer)
		i := bergtest.Running(ctx, ns, "withdrawn")
		inprocess.Pause()
		lift := freeze(ctx, ns, "UPDATE", updates, statuses)
		Expect(k8s.Delete(ctx, c)).To(Succeed())
		inprocess.Restart(map[string]string{"CHALLENGE_WITHDRAWAL_POLICY": "Stop"}, nil)
		Eventually(func() bool { return bergtest.NamespaceExists(ctx, i) }).Should(BeFalse(), "its pods run on")
		saysWhy(ctx, i, "Terminating due to AdminTermination")
		lift()
		bergtest.Gone(ctx, i)
	})

	It("lets an extension at the last moment win", func(ctx context.Context) {
		i := bergtest.StartRunning(ctx, "moment", bergtest.OneContainer)
		ns := i.Namespace
		inprocess.Pause()
		freeze(ctx, ns, "UPDATE", updates)
		// Only the operator is frozen: it cannot write why, and goes on to the deletion.
		isExtendedBefore(ctx, i, http.MethodDelete)
	})

	It("of deletions is reported, tried with growing pauses, and waited out", func(ctx context.Context) {
		ns := bergtest.Publish(ctx, "undeletable", bergtest.OneContainer)
		i, extended := bergtest.Instance(ctx, ns, "undeletable"), bergtest.Instance(ctx, ns, "undeletable")
		expect.Reaches(ctx, i, bergv1.PhaseRunning)
		expect.Reaches(ctx, extended, bergv1.PhaseRunning)
		inprocess.Pause()
		lift := freeze(ctx, ns, "DELETE", updates)
		var mu sync.Mutex
		var tries []time.Time
		name := i.Name // i is read again while the operator runs
		inprocess.Instead(later(), nil, transport.Showing(func(r *http.Request) {
			if r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, "/challengeinstances/"+name) {
				mu.Lock()
				defer mu.Unlock()
				tries = append(tries, time.Now())
			}
		}))
		for _, blocked := range []*bergv1.ChallengeInstance{i, extended} {
			expect.Shows(ctx, blocked, bergv1.ConditionNamespaceDeleted, metav1.ConditionFalse, bergv1.ReasonDeletionBlocked)
			expect.Says(ctx, blocked, apiserver.Refusal, "it does not say what the API server said")
			Expect(blocked.Status.Phase).To(Equal(bergv1.PhaseRunning))
			expect.Event(ctx, blocked, corev1.EventTypeWarning, bergv1.ReasonDeletionBlocked)
		}
		Expect(inprocess.Metric("berg_challengeinstance_max_overdue_seconds")).To(BeNumerically(">", 1800), "it is an hour late")
		const enough = 7
		Eventually(func() int {
			mu.Lock()
			defer mu.Unlock()
			return len(tries)
		}).Should(BeNumerically(">=", enough))
		mu.Lock()
		Expect(tries[enough-1].Sub(tries[enough-2])).To(BeNumerically(">", 2*time.Second), "the pauses do not grow")
		mu.Unlock()

		By("one that is given more time, and whose reason is taken back, is not blocked any more")
		apiserver.Change(ctx, extended, func() { extended.Spec.Timeout, extended.Spec.TerminationReason = "9h", "" })
		expect.Shows(ctx, extended, bergv1.ConditionNamespaceDeleted, metav1.ConditionFalse, bergv1.ReasonLive)

		By("the other one is deleted when that is allowed")
		lift()
		bergtest.Gone(ctx, i)
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(extended), extended)).To(Succeed())
		Expect(extended.DeletionTimestamp).To(BeNil())
	})

	DescribeTable("is shown by an instance that cannot start, which starts when it is lifted",
		func(ctx context.Context, frozen ...string) {
			ns := bergtest.Publish(ctx, "waits", bergtest.OneContainer)
			lift := freeze(ctx, ns, "UPDATE", frozen...)
			i := bergtest.Instance(ctx, ns, "waits")
			expect.Event(ctx, i, corev1.EventTypeWarning, bergv1.ReasonRefused)
			if len(frozen) == 1 && frozen[0] == updates {
				expect.Shows(ctx, i, bergv1.ConditionNamespaceCreated, metav1.ConditionFalse, bergv1.ReasonRefused)
				expect.Says(ctx, i, apiserver.Refusal)
				Expect(i.Status.Phase).To(Equal(bergv1.PhasePending))
			}
			Expect(bergtest.NamespaceExists(ctx, i)).To(BeFalse(), "made without a finalizer, or without a trace in the status")
			lift()
			expect.Reaches(ctx, i, bergv1.PhaseRunning)
		},
		Entry("of the resource", updates),
		Entry("of the status", statuses),
		Entry("of both", updates, statuses),
	)
})

// freeze lets the API server refuse an operation of the operator on the instances of
// a namespace until lift is called. Others may do as they like.
func freeze(ctx context.Context, namespace, operation string, resources ...string) (lift func()) {
	GinkgoHelper()
	// It is of no Challenge, so the operator does nothing with it but put its finalizer on.
	probe := bergtest.Instance(ctx, namespace, "none", func(i *bergv1.ChallengeInstance) { i.GenerateName = "probe-" })
	as, look := apiserver.As(apiserver.OperatorUser), apiserver.RawPatch(`{"metadata":{"annotations":{"probe":"1"}},"status":{"namespace":"probe"}}`)
	var attempts []func() error
	for _, resource := range resources {
		attempts = append(attempts, func() error {
			switch {
			case operation == "DELETE":
				return as.Delete(ctx, probe.DeepCopy(), client.DryRunAll)
			case strings.HasSuffix(resource, "/status"):
				return as.Status().Patch(ctx, probe.DeepCopy(), look, &client.SubResourcePatchOptions{PatchOptions: client.PatchOptions{DryRun: []string{metav1.DryRunAll}}})
			default:
				return as.Patch(ctx, probe.DeepCopy(), look, client.DryRunAll)
			}
		})
	}
	return apiserver.Deny(ctx, apiserver.Denial{
		Name:  strings.Join([]string{"freeze", operation, strings.ReplaceAll(strings.Join(resources, "-"), "/", "-"), namespace}, "-"),
		Group: bergv1.GroupVersion.Group, Resources: resources, Operation: operation,
		Labels:     map[string]string{corev1.LabelMetadataName: namespace},
		Conditions: []string{apiserver.ByOperator},
	}, attempts...)
}

// saysWhy waits for the event that tells why an instance ends; it may be gone.
func saysWhy(ctx context.Context, i *bergv1.ChallengeInstance, note string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var events corev1.EventList
		g.Expect(k8s.List(ctx, &events, client.InNamespace(i.Namespace))).To(Succeed())
		var seen []string
		for _, e := range events.Items {
			if e.InvolvedObject.UID == i.UID && e.Reason == bergv1.ReasonInstanceEnding {
				seen = append(seen, e.Message)
			}
		}
		g.Expect(seen).To(ConsistOf(note))
	}).Should(Succeed())
}
