package kibaship

import (
	"context"
	"net"
	"strings"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/test/lib/deployed"
	"github.com/bergctf/berg-operator/test/lib/expect"
)

// runToolbox starts a pod that answers HTTP at port 8080, and waits until it is ready.
func runToolbox(ctx context.Context, namespace string) *corev1.Pod {
	GinkgoHelper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "toolbox"},
		Spec: corev1.PodSpec{AutomountServiceAccountToken: ptr.To(false), Containers: []corev1.Container{{
			Name: "toolbox", Image: deployed.ToolboxImage, Env: []corev1.EnvVar{{Name: "TOOLBOX_HTTP", Value: ":8080"}},
		}}},
	}
	Expect(world.Create(ctx, pod)).To(Succeed())
	expect.Refreshed(ctx, deployed.StartLimit, pod, func() error { return deployed.ErrorIf(!deployed.PodReady(pod), "the toolbox is not ready") })
	return pod
}

// newConfined creates a Project with a network policy, and a pod in it.
func newConfined(ctx context.Context, policy kibashipv1.NetworkPolicy) *corev1.Pod {
	GinkgoHelper()
	p := &kibashipv1.Project{
		ObjectMeta: metav1.ObjectMeta{Name: "p" + uuid.NewString()[:6], Labels: map[string]string{kibashipv1.LabelUUID: uuid.NewString()}},
		Spec:       kibashipv1.ProjectSpec{NetworkPolicy: &policy},
	}
	Expect(world.Create(ctx, p)).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		Expect(client.IgnoreNotFound(world.Delete(ctx, p))).To(Succeed())
		expect.GoneWithin(ctx, p, deployed.DeleteLimit)
	}, NodeTimeout(deployed.DeleteLimit))
	expect.ReachesWithin(ctx, p, kibashipv1.ProjectReady, deployed.ReactLimit)
	return runToolbox(ctx, p.Status.NamespaceName)
}

// answers tries addresses from a pod, and returns what answered: reached, refused, or silent.
func answers(ctx context.Context, from *corev1.Pod, addresses map[string]string) map[string]string {
	GinkgoHelper()
	command, names := []string{"probe"}, map[string]string{}
	for name, address := range addresses {
		names["tcp/"+address] = name
		command = append(command, "tcp/"+address)
	}
	out, err := world.ExecIn(ctx, client.ObjectKeyFromObject(from), "", command...)
	Expect(err).NotTo(HaveOccurred())
	all := map[string]string{}
	for line := range strings.Lines(out.Stdout) {
		address, answer, _ := strings.Cut(strings.TrimSpace(line), "\t")
		all[names[address]] = answer
	}
	Expect(all).To(HaveLen(len(addresses)), out.Stdout)
	return all
}

func addressFor(pod *corev1.Pod, port string) string { return net.JoinHostPort(pod.Status.PodIP, port) }

var _ = Describe("The pods of a Project", Label("network", "attack"), Serial, func() {
	It("reach each other, and nothing of other Projects, of the cluster and of the operator", func(ctx SpecContext) {
		setOperator(ctx, map[string]string{"GIT_WEBHOOK_URL": "http://pushes.example.org"})
		DeferCleanup(func(ctx SpecContext) { setOperator(ctx, map[string]string{"GIT_WEBHOOK_URL": ""}) }, NodeTimeout(deployed.StartLimit))
		receiver := installReceiver(ctx)
		elsewhere := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "outside-projects-"}}
		Expect(world.Create(ctx, elsewhere)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(world.Delete(ctx, elsewhere)).To(Succeed()) })
		stranger := runToolbox(ctx, elsewhere.Name)
		closed := newConfined(ctx, kibashipv1.NetworkPolicy{})
		internet := newConfined(ctx, kibashipv1.NetworkPolicy{Egress: kibashipv1.EgressInternet})
		admits := newConfined(ctx, kibashipv1.NetworkPolicy{IngressFrom: []string{elsewhere.Name}})
		service := &corev1.Service{}
		Expect(world.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}, service)).To(Succeed())
		operators, err := world.OperatorPods(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(operators).NotTo(BeEmpty())

		cluster := map[string]string{
			"a pod of no Project":                addressFor(stranger, "8080"),
			"a pod of another Project":           addressFor(admits, "8080"),
			"the API server, by its Service":     net.JoinHostPort(service.Spec.ClusterIP, "443"),
			"the API server, at the node":        net.JoinHostPort(world.NodeAddress, "6443"),
			"the kubelet":                        net.JoinHostPort(world.NodeAddress, "10250"),
			"the receiver of webhooks":           addressFor(receiver, "8080"),
			"the receiver's metrics":             addressFor(receiver, "8081"),
			"the operator's metrics":             addressFor(&operators[0], "8443"),
			"the operator's answers about kinds": addressFor(&operators[0], "9443"),
		}
		By("a pod that no policy confines: it reaches everything but the receiver's metrics, which the receiver's own policy keeps from it")
		for name, answer := range answers(ctx, stranger, cluster) {
			if name == "the receiver's metrics" {
				Expect(answer).To(Equal("silent"), name)
			} else {
				Expect(answer).To(Equal("reached"), "%s: otherwise the rest would show nothing", name)
			}
		}
		Expect(answers(ctx, stranger, map[string]string{"closed": addressFor(closed, "8080"), "internet": addressFor(internet, "8080")})).
			To(Equal(map[string]string{"closed": "silent", "internet": "silent"}))

		for name, pod := range map[string]*corev1.Pod{"without egress": closed, "with egress to the internet": internet} {
			By("a pod " + name)
			own := map[string]string{"itself": addressFor(pod, "8080")}
			Expect(answers(ctx, pod, own)).To(HaveKeyWithValue("itself", "reached"))
			for target, answer := range answers(ctx, pod, cluster) {
				Expect(answer).To(Equal("silent"), target)
			}
		}
	}, SpecTimeout(2*deployed.SpecLimit))
})
