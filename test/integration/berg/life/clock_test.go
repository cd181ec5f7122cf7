package life

import (
	"context"
	"fmt"
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
	"github.com/bergctf/berg-operator/test/lib/limits"
)

// The time of day jumps when a clock is set and when a machine was suspended. Timers
// run on as if nothing had happened.
var _ = Describe("A clock that is put forward", func() {
	It("deletes within a second the instances whose time it passes, also where the rest is waited for after it", func(ctx context.Context) {
		ns := bergtest.Publish(ctx, "forward", bergtest.OneContainer)
		over, soon, later := bergtest.Instance(ctx, ns, "forward", bergtest.WithTimeout("1h")), bergtest.Instance(ctx, ns, "forward", bergtest.WithTimeout("2h")), bergtest.Instance(ctx, ns, "forward", bergtest.WithTimeout("9h"))
		now := &bergtest.SteppingClock{}
		inprocess.Instead(now, nil, nil)
		bergtest.AllRun(ctx, over, soon, later)
		// A timer of hours runs for each of them.
		for _, i := range []*bergv1.ChallengeInstance{over, soon, later} {
			bergtest.RollOut(ctx, i, "seen")
			expect.Becomes(ctx, i, func(g Gomega) {
				g.Expect(i.Status.ObservedRollout).To(Equal("seen"))
			})
		}
		ends := func(i *bergv1.ChallengeInstance, due time.Time, all func() time.Time) {
			GinkgoHelper()
			late := all().Sub(due)
			AddReportEntry("expiry", fmt.Sprintf("%s after it was due", late.Round(time.Millisecond)))
			Expect(late).To(And(BeNumerically(">=", 0), BeNumerically("<", limits.Immediately)))
		}

		first := bergtest.Versions(ctx, over)
		stepped := time.Now()
		now.Step(90 * time.Minute)
		ends(over, stepped, func() time.Time { return deletedAt(first, over.UID) })

		By("to two seconds before the expiry of the next one")
		second := bergtest.Versions(ctx, soon)
		rest := soon.Status.ExpiresAt.Sub(now.Now())
		now.Step(rest - 2*time.Second)
		ends(soon, time.Now().Add(soon.Status.ExpiresAt.Sub(now.Now())), func() time.Time { return deletedAt(second, soon.UID) })

		bergtest.Gone(ctx, over)
		bergtest.Gone(ctx, soon)
		expect.Reaches(ctx, later, bergv1.PhaseRunning)
	})

	It("after it was put back deletes none too early, and all in time", func(ctx context.Context) {
		ns := bergtest.Publish(ctx, "back", bergtest.OneContainer)
		now := &bergtest.SteppingClock{}
		now.Step(time.Hour)
		inprocess.Instead(now, nil, nil)
		i := bergtest.Running(ctx, ns, "back", bergtest.WithTimeout("9h"))
		all := bergtest.Versions(ctx, i)
		lives := now.Now().Sub(i.Status.StartedAt.Time) + 5*time.Second
		apiserver.Change(ctx, i, func() { i.Spec.Timeout = fmt.Sprintf("%ds", int(lives.Seconds())) })
		now.Step(-time.Hour)
		Consistently(func(g Gomega) {
			g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(i), i)).To(Succeed())
			g.Expect(i.DeletionTimestamp).To(BeNil())
		}).WithTimeout(6 * time.Second).Should(Succeed())
		stepped := time.Now()
		now.Step(time.Hour)
		Expect(deletedAt(all, i.UID).Sub(stepped)).To(BeNumerically("<", limits.Immediately))
		bergtest.Gone(ctx, i)
	})

	It("fails immediately what has not become ready by its start deadline", func(ctx context.Context) {
		ns := bergtest.Publish(ctx, "deadline", bergtest.NeverReady)
		now := &bergtest.SteppingClock{}
		inprocess.Instead(now, nil, nil)
		i := bergtest.Instance(ctx, ns, "deadline", bergtest.WithTimeout("9h"))
		expect.Shows(ctx, i, bergv1.ConditionPodsReady, metav1.ConditionFalse, corev1.PodReasonUnschedulable)
		Expect(i.Status.Phase).To(Equal(bergv1.PhaseStarting))
		now.Step(cfg.Challenge.StartDeadline)
		expect.Shows(ctx, i, bergv1.ConditionPodsReady, metav1.ConditionFalse, bergv1.ReasonStartDeadline)
		Expect(i.Status.Phase).To(Equal(bergv1.PhaseFailed))
	})
})
