package berg

import (
	"context"
	"os"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/deployed"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/journey"
)

var _ = Describe("While an instance starts and ends", Label("network", "ending", "attack"), Serial, func() {
	DescribeTable("reaches nothing that it did not reach before, also if its program ignores the signal to end", func(ctx SpecContext, installed func(context.Context), cascade string) {
		installed(ctx)
		stage := journey.NewStage(ctx)
		counter := stage.Outsider(ctx, "counter", corev1.EnvVar{Name: "TOOLBOX_COUNT", Value: ":9002"})
		address := counter.Status.PodIP + ":9002"
		clients := func() string {
			GinkgoHelper()
			text, err := world.Plain.CoreV1().Pods(counter.Namespace).GetLogs(counter.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
			Expect(err).NotTo(HaveOccurred())
			return string(text)
		}

		By("counting a pod that no policy selects")
		neighbour := stage.Outsider(ctx, "neighbour", corev1.EnvVar{Name: "TOOLBOX_DIAL", Value: address})
		expect.Until(ctx, deployed.ReactLimit, func(context.Context) error {
			return deployed.ErrorIf(!strings.Contains(clients(), "client "+neighbour.Status.PodIP+":"), "the neighbour is not counted")
		})
		Expect(world.Delete(ctx, neighbour)).To(Succeed())

		By("an instance that dials from its start until its end, and after it")
		container := journey.Toolbox("box")
		container.Environment = map[string]bergv1.EnvironmentValue{"TOOLBOX_DIAL": bergv1.StringValue(address)}
		stage.Challenge(ctx, "clinging", container)
		story := stage.Start(ctx, stage.Instance("clinging"))
		story.ExpectPhase(ctx, deployed.StartLimit, bergv1.PhaseRunning)
		pods, err := world.Pods(ctx, story.InstanceNamespace(), client.MatchingLabels{bergv1.LabelContainer: "box"})
		Expect(err).NotTo(HaveOccurred())
		Expect(pods).To(HaveLen(1))
		dialler := "client " + pods[0].Status.PodIP + ":"
		world.KubectlDelete(ctx, story.Now(), cascade)
		story.ExpectEnd(ctx)
		const kubeletOwes = 5 * time.Second // it kills after two seconds
		Consistently(clients).WithTimeout(kubeletOwes).WithPolling(500 * time.Millisecond).ShouldNot(ContainSubstring(dialler))
	},
		Entry("by the policies of the instance alone", func(context.Context) {}, "background", SpecTimeout(deployed.SpecLimit)),
		Entry("by them alone, deleted with --cascade=foreground", func(context.Context) {}, "foreground", SpecTimeout(deployed.SpecLimit)),
		Entry("by them alone, deleted with --cascade=orphan", func(context.Context) {}, "orphan", SpecTimeout(deployed.SpecLimit)),
		Entry("with the default policy for the cluster", defaultDeny, "background", SpecTimeout(deployed.SpecLimit)),
	)
})

// defaultDeny applies deploy/default-deny-cilium.yaml until the spec ends.
func defaultDeny(ctx context.Context) {
	GinkgoHelper()
	text, err := os.ReadFile("../../../deploy/default-deny-cilium.yaml")
	Expect(err).NotTo(HaveOccurred())
	policy := &ciliumv2.CiliumClusterwideNetworkPolicy{}
	Expect(yaml.UnmarshalStrict(text, policy)).To(Succeed())
	Expect(world.Create(ctx, policy)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(world.Delete(ctx, policy)).To(Succeed()) }, NodeTimeout(deployed.ReactLimit))
}
