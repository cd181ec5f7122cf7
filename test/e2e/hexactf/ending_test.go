package hexactf

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/test/lib/deployed"
	"github.com/bergctf/berg-operator/test/lib/expect"
)

// These specs need a cluster that enforces network policies.
var _ = Describe("While a challenge ends", Label("network", "ending", "attack"), func() {
	DescribeTable("its pods reach nothing that they did not reach before, also if they ignore the signal to end", func(ctx SpecContext, cascade string) {
		p, elsewhere := newPlatform(ctx), newPlatform(ctx)
		counter := elsewhere.runs(ctx, "counter", deployed.ToolboxImage, corev1.EnvVar{Name: "TOOLBOX_COUNT", Value: ":9002"})
		dial := corev1.EnvVar{Name: "TOOLBOX_DIAL", Value: counter.Status.PodIP + ":9002"}
		clients := func() string {
			GinkgoHelper()
			text, err := world.Plain.CoreV1().Pods(counter.Namespace).GetLogs(counter.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
			Expect(err).NotTo(HaveOccurred())
			return string(text)
		}
		counted := func(pod *corev1.Pod) string { return "client " + pod.Status.PodIP + ":" }

		By("counting a pod that no policy selects")
		neighbour := elsewhere.runs(ctx, "neighbour", deployed.ToolboxImage, dial)
		expect.Until(ctx, deployed.ReactLimit, func(context.Context) error {
			return deployed.ErrorIf(!strings.Contains(clients(), counted(neighbour)), "the neighbour is not counted")
		})

		By("a challenge that dials until its end")
		p.define(ctx, "clinging", func(spec *hexactfv1.ChallengeDefinitionSpec) {
			tools := *spec.Components[0].DeepCopy()
			tools.Name, tools.Service = shellComponent, nil
			tools.Deployment.Spec.Template.Spec.Containers = []corev1.Container{{Name: shellComponent, Image: deployed.ToolboxImage, Env: []corev1.EnvVar{dial}}}
			spec.Components = append(spec.Components, tools)
		})
		c := p.request(ctx, "clinging")
		reaches(ctx, c, hexactfv1.StateRunning)
		pod := podOf(ctx, c, shellComponent)
		world.KubectlDelete(ctx, c, cascade)
		expect.GoneWithin(ctx, c, deployed.DeleteLimit)
		const kubeletOwes = 5 * time.Second // it kills after two seconds
		Consistently(clients).WithTimeout(kubeletOwes).WithPolling(500 * time.Millisecond).ShouldNot(ContainSubstring(counted(pod)))
	},
		Entry("with --cascade=background", "background", SpecTimeout(deployed.SpecLimit)),
		Entry("with --cascade=foreground", "foreground", SpecTimeout(deployed.SpecLimit)),
		Entry("with --cascade=orphan", "orphan", SpecTimeout(deployed.SpecLimit)),
	)
})
