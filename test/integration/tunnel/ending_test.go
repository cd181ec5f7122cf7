package tunnel

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/tunneltest"
)

var _ = Describe("The end of a container network", func() {
	// begin creates a network with a pod of a tenant that does not end.
	begin := func(ctx context.Context) (n *tunnelv1.ContainerNetwork, pod *corev1.Pod, release func()) {
		GinkgoHelper()
		n = tunneltest.Network(ctx)
		pod = &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: n.Status.NetworkName, Name: "clinging"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.com/c"}}},
		}
		Expect(k8s.Create(ctx, pod)).To(Succeed())
		return n, pod, expect.HeldPod(ctx, pod)
	}

	DescribeTable("keeps its network policy until its last pod is gone", func(ctx context.Context, cascade metav1.DeletionPropagation) {
		n, pod, release := begin(ctx)
		Expect(k8s.Delete(ctx, n, client.PropagationPolicy(cascade))).To(Succeed())
		expect.Confined(ctx, pod)
		release()
		expect.Gone(ctx, n)
	}, expect.Cascades())

	It("by its namespace keeps it too", func(ctx context.Context) {
		n, pod, release := begin(ctx)
		ns := apiserver.Get[corev1.Namespace](ctx, client.ObjectKey{Name: n.Status.NetworkName})
		Expect(k8s.Delete(ctx, ns)).To(Succeed())
		expect.Confined(ctx, pod)
		release()
		expect.Gone(ctx, ns)
	})
})

var _ = Describe("The end of a pair of proxies", func() {
	DescribeTable("keeps its network policy until the proxies are gone, and then leaves none", func(ctx context.Context, cascade metav1.DeletionPropagation) {
		p, _ := running(ctx)
		pod := tunneltest.ClientPod(ctx, p)
		mine := client.MatchingLabels{tunnelv1.LabelProxy: string(p.UID)}
		release := expect.HeldPod(ctx, pod)
		Expect(k8s.Delete(ctx, p, client.PropagationPolicy(cascade))).To(Succeed())
		expect.Confined(ctx, pod, mine)
		release()
		expect.Gone(ctx, p)
		Expect(apiserver.Names(ctx, &networkingv1.NetworkPolicyList{}, client.InNamespace(pod.Namespace), mine)).To(BeEmpty())
	}, expect.Cascades())

	It("is possible in a network that is deleted in the foreground", func(ctx context.Context) {
		ns := apiserver.Namespace(ctx)
		namespace := apiserver.Get[corev1.Namespace](ctx, client.ObjectKey{Name: ns})
		apiserver.Change(ctx, namespace, func() { namespace.Labels["usvc-dev.developer.microsoft.com/operator"] = "allowed" })
		n := tunneltest.Network(ctx, func(n *tunnelv1.ContainerNetwork) { n.Spec.Mode, n.Spec.NetworkName = tunnelv1.ModeExisting, ns })
		p := tunneltest.Proxy(ctx, n.Name, tunneltest.To("web", tunneltest.NewEcho(0).Port))
		tunneltest.Reaches(ctx, p, tunnelv1.StateRunning)
		Expect(k8s.Delete(ctx, n, client.PropagationPolicy(metav1.DeletePropagationForeground))).To(Succeed())
		expect.Shows(ctx, n, tunnelv1.ConditionNamespaceReady, "False", tunnelv1.ReasonInUse)
		Expect(k8s.Delete(ctx, p)).To(Succeed())
		expect.Gone(ctx, p)
		expect.Gone(ctx, n)
	})
})
