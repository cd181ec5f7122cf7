package berg

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
	"github.com/bergctf/berg-operator/test/lib/deployed"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/journey"
	"github.com/bergctf/berg-operator/test/lib/limits"
)

var _ = Describe("The start of an instance", Label("versions"), func() {
	It("is recorded stage by stage, as kubelet and runtime report it", func(ctx SpecContext) {
		stage := journey.NewStage(ctx)
		stage.Sample(ctx, "pwn")
		reported := stage.Start(ctx, stage.Instance("pwn"))
		i := reported.ExpectPhase(ctx, deployed.StartLimit, bergv1.PhaseRunning)
		s := i.Status.Start
		Expect(s).NotTo(BeNil())
		AddReportEntry("stages", fmt.Sprintf("started %s: %+v", i.Status.StartedAt, s))
		last := i.Status.StartedAt.Time
		for n, at := range []*metav1.MicroTime{
			s.NamespaceCreatedAt, s.ObjectsWrittenAt, s.ScheduledAt, s.SandboxesCreatedAt, s.ImagesPulledAt, s.ContainersStartedAt, s.PodsReadyAt,
		} {
			Expect(at).NotTo(BeNil(), "stage %d is missing when it is Running: %+v", n, s)
			Expect(at.Time.Before(last)).To(BeFalse(), "stage %d is before the one above: %+v", n, s)
			last = at.Time
		}

		By("the pod")
		pods, err := world.Pods(ctx, reported.InstanceNamespace(), nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(pods).To(HaveLen(1))
		Expect(pods[0].Status.ContainerStatuses).To(HaveLen(1))
		running := pods[0].Status.ContainerStatuses[0].State.Running
		Expect(running).NotTo(BeNil())
		Expect(s.ContainersStartedAt.Time).To(BeTemporally("~", running.StartedAt.Time, time.Second))

		By("the image, which the kubelet says was there between the sandbox and the start")
		var pulled *corev1.Event
		expect.Until(ctx, deployed.ReactLimit, func(ctx context.Context) error {
			var events corev1.EventList
			if err := world.List(ctx, &events, client.InNamespace(reported.InstanceNamespace()), client.MatchingFields{"reason": "Pulled"}); err != nil {
				return err
			}
			for n := range events.Items {
				pulled = &events.Items[n]
			}
			return deployed.ErrorIf(pulled == nil, "the kubelet tells of no image")
		})
		AddReportEntry("image", pulled.Message)
		at := pulled.LastTimestamp.Time
		if at.IsZero() {
			at = pulled.EventTime.Time
		}
		Expect(at).To(And(BeTemporally(">=", s.SandboxesCreatedAt.Add(-time.Second)), BeTemporally("<=", s.ImagesPulledAt.Add(time.Second))), "%+v", s)
	}, SpecTimeout(2*deployed.StartLimit))

	It("is reported as crashing from the first pause on, through every attempt", func(ctx SpecContext) {
		// What the check of isolation finds is written to every instance.
		expect.Until(ctx, 2*deployed.StartLimit, func(ctx context.Context) error {
			_, _, err := isolationVerified(ctx)
			return err
		})
		stage := journey.NewStage(ctx)
		challenge := stage.Sample(ctx, "pwn")
		before := challenge.DeepCopy()
		challenge.Spec.Containers[0].Environment = map[string]bergv1.EnvironmentValue{"LISTEN_HOST": bergv1.StringValue("203.0.113.250")} // not its own
		Expect(world.Patch(ctx, challenge, client.MergeFrom(before))).To(Succeed())
		reported := stage.Start(ctx, stage.Instance("pwn"))
		reported.ExpectNow(ctx, deployed.StartLimit, "the cause", func(i *bergv1.ChallengeInstance) bool { return i.Status.Cause == bergv1.CauseCrashing })
		version := reported.Now().ResourceVersion

		By("two more attempts")
		expect.Until(ctx, 2*time.Minute, func(ctx context.Context) error {
			pods, err := world.Pods(ctx, reported.InstanceNamespace(), nil)
			if err != nil {
				return err
			}
			return deployed.ErrorIf(len(pods) != 1 || len(pods[0].Status.ContainerStatuses) != 1 || pods[0].Status.ContainerStatuses[0].RestartCount < 3, "it was not restarted three times")
		})
		Expect(reported.Now().ResourceVersion).To(Equal(version), "an attempt was written: %s", journey.Summary(reported.Now()))
	}, SpecTimeout(limits.Scaled(4*time.Minute)))
})
