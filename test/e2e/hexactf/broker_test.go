package hexactf

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/test/lib/broker"
	"github.com/bergctf/berg-operator/test/lib/deployed"
	"github.com/bergctf/berg-operator/test/lib/expect"
)

// disturb stops the broker until back is called, at the latest until the spec ends. back may be called more than once.
func disturb(ctx context.Context, stop func() error, restart func(context.Context) error) (back func()) {
	GinkgoHelper()
	Expect(stop()).To(Succeed())
	running := false
	back = func() {
		GinkgoHelper()
		if !running {
			running = true
			Expect(restart(ctx)).To(Succeed())
		}
	}
	DeferCleanup(func(ctx SpecContext) {
		if !running {
			Expect(restart(ctx)).To(Succeed())
		}
	}, NodeTimeout(brokerLimit))
	return back
}

func paused(ctx context.Context) (back func()) {
	GinkgoHelper()
	return disturb(ctx, kafka.Pause, func(context.Context) error { return kafka.Resume() })
}

// notifying waits for a reason of the condition Notifying, and refreshes the challenge.
func notifying(ctx context.Context, c *hexactfv1.Challenge, reason string) {
	GinkgoHelper()
	expect.Refreshed(ctx, deployed.ReactLimit, c, func() error {
		now := meta.FindStatusCondition(c.Status.Conditions, hexactfv1.ConditionNotifying)
		return deployed.ErrorIf(now == nil || now.Reason != reason, expect.Conditions(c))
	})
}

// expectNoMessages fails if there are other messages about a challenge than those about these states.
func expectNoMessages(c *hexactfv1.Challenge, want ...string) {
	GinkgoHelper()
	received, err := receivedBy(log.Messages(), c)
	Expect(err).NotTo(HaveOccurred())
	Expect(states(received)).To(Equal(want))
}

var _ = Describe("While the broker", Serial, func() {
	It("does not answer, challenges start and run, and the platform gets the messages later", func(ctx SpecContext) {
		p := newPlatform(ctx)
		p.define(ctx, "web")
		before := p.request(ctx, "web")
		receives(ctx, before, creating, running)

		back := paused(ctx)
		var all []*hexactfv1.Challenge
		for range 3 {
			all = append(all, p.request(ctx, "web"))
		}
		for _, c := range all {
			reaches(ctx, c, hexactfv1.StateRunning)
			visits(ctx, c.Status.Endpoint)
			expectNoMessages(c)
			notifying(ctx, c, hexactfv1.ReasonNotifyFailed)
		}
		Expect(world.Get(ctx, client.ObjectKeyFromObject(before), before)).To(Succeed())
		Expect(before.DeletionTimestamp).To(BeNil(), "a challenge was deleted because the broker does not answer")
		Expect(before.Status.CurrentStatus.State).To(Equal(hexactfv1.StateRunning))

		back()
		for _, c := range all {
			receives(ctx, c, creating, running)
			notifying(ctx, c, hexactfv1.ReasonNotifying)
		}
	}, SpecTimeout(deployed.SpecLimit))

	It("does not answer, a deletion waits for it, and continues when it answers again", func(ctx SpecContext) {
		p := newPlatform(ctx)
		p.define(ctx, "web")
		// Its first messages are not sent. Deleted alone would be stored, and delay nothing.
		back := paused(ctx)
		c := p.request(ctx, "web")
		reaches(ctx, c, hexactfv1.StateRunning)
		remove(ctx, c)
		reaches(ctx, c, hexactfv1.StateTerminating)
		back()
		expect.GoneWithin(ctx, c, deployed.ReactLimit)
		receives(ctx, c, creating, running, deleted)
	}, SpecTimeout(deployed.SpecLimit))

	It("does not answer for a long time, a deletion continues without it, and reports messages that may be lost", func(ctx SpecContext) {
		p := newPlatform(ctx)
		p.define(ctx, "web")
		other := p.request(ctx, "web")
		receives(ctx, other, creating, running)
		paused(ctx)
		c := p.request(ctx, "web")
		reaches(ctx, c, hexactfv1.StateRunning)
		remove(ctx, c)
		began := time.Now()
		expect.GoneWithin(ctx, c, deleteTimeout+deployed.ReactLimit)
		Expect(time.Since(began)).To(BeNumerically(">=", deleteTimeout-time.Second), "the deletion did not wait")
		expect.Until(ctx, deployed.ReactLimit, func(ctx context.Context) error {
			var events corev1.EventList
			if err := world.List(ctx, &events, client.InNamespace(p.namespace)); err != nil {
				return err
			}
			for _, e := range events.Items {
				if e.InvolvedObject.UID == c.UID && e.Reason == hexactfv1.ReasonMessagesLost && strings.Contains(e.Message, "may be lost") {
					return nil
				}
			}
			return fmt.Errorf("%s has no event %s", c.Name, hexactfv1.ReasonMessagesLost)
		})
		Expect(newDashboard(ctx, p).text(ctx)).To(MatchRegexp(`(?m)^hexactf_messages_lost_total [1-9]`))
		Expect(world.Get(ctx, client.ObjectKeyFromObject(other), other)).To(Succeed())
		Expect(other.DeletionTimestamp).To(BeNil())
		Expect(other.Status.CurrentStatus.State).To(Equal(hexactfv1.StateRunning))
	}, SpecTimeout(deployed.SpecLimit))

	It("does not answer and the operator is killed, no message is lost", func(ctx SpecContext) {
		p := newPlatform(ctx)
		p.define(ctx, "web")
		back := disturb(ctx, kafka.Kill, kafka.Restart)
		var all []*hexactfv1.Challenge
		for range 3 {
			all = append(all, p.request(ctx, "web"))
		}
		for _, c := range all {
			reaches(ctx, c, hexactfv1.StateRunning)
		}
		pods, err := world.OperatorPods(ctx)
		Expect(err).NotTo(HaveOccurred())
		for i := range pods {
			Expect(world.Delete(ctx, &pods[i], client.GracePeriodSeconds(0))).To(Succeed())
		}
		expect.Until(ctx, deployed.StartLimit, deployed.ExpectLease)
		remove(ctx, all[0])
		reaches(ctx, all[0], hexactfv1.StateTerminating)
		back()
		receives(ctx, all[0], creating, running, deleted)
		receives(ctx, all[1], creating, running)
		receives(ctx, all[2], creating, running)
	}, SpecTimeout(2*deployed.SpecLimit))

	It("loses its disk, the messages that were not sent arrive on the new disk", func(ctx SpecContext) {
		p := newPlatform(ctx)
		p.define(ctx, "web")
		before := p.request(ctx, "web")
		receives(ctx, before, creating, running)
		back := disturb(ctx, kafka.Kill, func(ctx context.Context) error {
			if err := kafka.LoseDisk(); err != nil {
				return err
			}
			if err := kafka.Restart(ctx); err != nil {
				return err
			}
			return log.Rejoin(context.Background())
		})
		c := p.request(ctx, "web")
		reaches(ctx, c, hexactfv1.StateRunning)
		back()
		receives(ctx, c, creating, running)
		remove(ctx, before)
		receives(ctx, before, creating, running, deleted)
	}, SpecTimeout(deployed.SpecLimit))

	It("refuses the password, the condition says why; the right one is used without a restart", func(ctx SpecContext) {
		p := newPlatform(ctx)
		p.define(ctx, "web")
		good := setPassword(ctx, []byte("wrong"))
		DeferCleanup(func(ctx SpecContext) { setPassword(ctx, good) }, NodeTimeout(deployed.StartLimit))
		// Open connections stay open, so a new process must log in.
		setOperator(ctx, map[string]string{"KAFKA_SEND_TIMEOUT": "4s"})
		c := p.request(ctx, "web")
		reaches(ctx, c, hexactfv1.StateRunning)
		notifying(ctx, c, hexactfv1.ReasonNotifyFailed)
		Expect(expect.Conditions(c)).To(ContainSubstring("SASL_AUTHENTICATION_FAILED"))
		operatorLog, err := world.OperatorLog(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(strings.Contains(operatorLog, strings.TrimSpace(string(good)))).To(BeFalse(), "the log contains the password")
		setPassword(ctx, good)
		// A kubelet brings a changed Secret to its pods within two minutes.
		ctxLong, cancel := context.WithTimeout(ctx, 3*time.Minute)
		defer cancel()
		Expect(log.Await(ctxLong, func(all []broker.Message) error {
			received, err := receivedBy(all, c)
			if err != nil {
				return err
			}
			return deployed.ErrorIf(len(received) < 2, "the platform has received "+fmt.Sprint(states(received)))
		})).To(Succeed())
		receives(ctx, c, creating, running)
	}, SpecTimeout(2*deployed.SpecLimit))
})

// setPassword changes the operator's password, and returns the previous one.
func setPassword(ctx context.Context, password []byte) (before []byte) {
	GinkgoHelper()
	secret := &corev1.Secret{}
	Expect(world.Get(ctx, client.ObjectKey{Namespace: world.Operator.Namespace, Name: secretName}, secret)).To(Succeed())
	before = secret.Data["password"]
	secret.Data["password"] = password
	Expect(world.Update(ctx, secret)).To(Succeed())
	return before
}
