package hexactf

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/test/lib/deployed"
	"github.com/bergctf/berg-operator/test/lib/expect"
)

// The components of a challenge of these specs: one that players reach, one that only the challenge reaches, and the
// shell of an attacker.
const (
	frontComponent = "web"
	backComponent  = "back"
	shellComponent = "shell"
)

func attacked(spec *hexactfv1.ChallengeDefinitionSpec) {
	inner := *spec.Components[0].DeepCopy()
	inner.Name = backComponent
	inner.Service.Spec.Type = corev1.ServiceTypeClusterIP
	tools := *spec.Components[0].DeepCopy()
	tools.Name, tools.Service = shellComponent, nil
	tools.Deployment.Spec.Template.Spec.Containers = []corev1.Container{{Name: shellComponent, Image: deployed.ToolboxImage}}
	spec.Components = append(spec.Components, inner, tools)
}

// podOf returns the pod of a component.
func podOf(ctx context.Context, c *hexactfv1.Challenge, component string) *corev1.Pod {
	GinkgoHelper()
	pods, err := world.Pods(ctx, c.Namespace, client.MatchingLabels{hexactfv1.LabelPartOf: c.Name, hexactfv1.LabelName: component})
	Expect(err).NotTo(HaveOccurred())
	Expect(pods).To(HaveLen(1))
	return &pods[0]
}

// runs starts a pod that no policy selects, and waits until it is ready.
func (p *platform) runs(ctx context.Context, name, image string, env ...corev1.EnvVar) *corev1.Pod {
	GinkgoHelper()
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = p.namespace, name
	pod.Spec.Containers = []corev1.Container{{Name: name, Image: image, Env: env}}
	Expect(world.Create(ctx, pod)).To(Succeed())
	expect.Refreshed(ctx, deployed.StartLimit, pod, func() error {
		return deployed.ErrorIf(!deployed.PodReady(pod), name+" is not ready")
	})
	return pod
}

func addressOf(pod *corev1.Pod) string {
	return net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(webPort))
}

func fetchFrom(ctx context.Context, pod *corev1.Pod, address string) error {
	out, err := world.ExecIn(ctx, client.ObjectKeyFromObject(pod), "", "get", "http://"+address+"/")
	if err != nil {
		return err
	}
	return deployed.ErrorIf(!strings.Contains(out.Stdout, "The Mountain Herald"), fmt.Sprintf("%s shows %q", address, out.Stdout))
}

func reachesFrom(ctx context.Context, pod *corev1.Pod, address string) {
	GinkgoHelper()
	expect.Until(ctx, deployed.ReactLimit, func(ctx context.Context) error { return fetchFrom(ctx, pod, address) })
}

// cannotReach expects that attempts get no answer at all: a refusal would be an answer of the server.
func cannotReach(ctx context.Context, pod *corev1.Pod, address, whose string) {
	GinkgoHelper()
	Consistently(ctx, func(ctx context.Context) error { return fetchFrom(ctx, pod, address) }).WithTimeout(3*time.Second).
		Should(MatchError(Or(ContainSubstring("timeout"), ContainSubstring("deadline"), ContainSubstring("timed out"))), whose)
}

// These specs need a cluster that enforces network policies.
var _ = Describe("Where network policies are enforced,", Label("network", "attack"), func() {
	It("players reach a challenge, its components reach each other, and all other traffic is denied", func(ctx SpecContext) {
		p, elsewhere := newPlatform(ctx), newPlatform(ctx)
		p.define(ctx, "attacked", attacked)
		one, other := p.request(ctx, "attacked"), p.request(ctx, "attacked")
		visitor, server := elsewhere.runs(ctx, "visitor", deployed.ToolboxImage), elsewhere.runs(ctx, "server", webImage)
		for _, c := range []*hexactfv1.Challenge{one, other} {
			reaches(ctx, c, hexactfv1.StateRunning)
			visits(ctx, c.Status.Endpoint)
		}
		attacker := podOf(ctx, one, shellComponent)

		By("allowed traffic")
		reachesFrom(ctx, visitor, addressOf(server)) // otherwise the rest would prove nothing
		reachesFrom(ctx, visitor, addressOf(podOf(ctx, one, frontComponent)))
		reachesFrom(ctx, attacker, addressOf(podOf(ctx, one, frontComponent)))
		reachesFrom(ctx, attacker, addressOf(podOf(ctx, one, backComponent)))
		service := "chall-" + one.Labels[hexactfv1.LabelChallengeID] + "-" + backComponent + "-" + one.Labels[hexactfv1.LabelUser] + "-svc"
		reachesFrom(ctx, attacker, net.JoinHostPort(service, strconv.Itoa(webPort)))

		By("denied traffic")
		cannotReach(ctx, attacker, addressOf(podOf(ctx, other, backComponent)), "a component of another player's challenge")
		cannotReach(ctx, visitor, addressOf(podOf(ctx, one, backComponent)), "a component that is not published, at a port that another publishes")
		cannotReach(ctx, attacker, addressOf(podOf(ctx, other, frontComponent)), "the published component of another player's challenge")
		cannotReach(ctx, attacker, addressOf(server), "a pod of another owner")
		cannotReach(ctx, attacker, world.AtNode(other.Status.Endpoint), "a node port")
	}, SpecTimeout(2*deployed.SpecLimit))
})
