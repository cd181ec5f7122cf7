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
	"github.com/bergctf/berg-operator/internal/tunnel/pairobjects"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/tunneltest"
)

// Who creates pods in a network can copy every label and annotation of a client proxy.
var _ = Describe("A pod that looks like a client proxy", func() {
	It("closes no port for the containers of its network", func(ctx context.Context) {
		p, _ := running(ctx)
		proxy := tunneltest.ClientPod(ctx, p)
		const port = 8080
		copied := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: proxy.Namespace, Name: "copied",
				Labels:      map[string]string{tunnelv1.LabelRole: tunnelv1.RoleClient, tunnelv1.LabelManagedBy: tunnelv1.ManagedBy},
				Annotations: proxy.Annotations,
			},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "a", Image: "registry.example.com/a:1", Ports: []corev1.ContainerPort{{ContainerPort: port}},
			}}},
		}
		Expect(pairobjects.OwnerFor(p).Owns(copied)).To(BeTrue())
		Expect(k8s.Create(ctx, copied)).To(Succeed())

		By("the network writes its policy with the pod in its cache")
		policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: proxy.Namespace, Name: "container-network"}}
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(policy), policy)).To(Succeed())
		before := policy.UID
		Expect(k8s.Delete(ctx, policy)).To(Succeed())
		expect.Becomes(ctx, policy, func(g Gomega) {
			g.Expect(policy.UID).NotTo(Equal(before))
		})
		open := func(port int32) bool {
			for _, p := range policy.Spec.Ingress[0].Ports {
				if *p.Protocol == corev1.ProtocolTCP && p.Port.IntVal <= port && port <= *p.EndPort {
					return true
				}
			}
			return false
		}
		Expect(open(port)).To(BeTrue(), "%v", policy.Spec.Ingress)
		for _, c := range proxy.Spec.Containers {
			for _, p := range c.Ports {
				Expect(open(p.ContainerPort)).To(BeFalse(), "port %d of the client proxy", p.ContainerPort)
			}
		}
	})
})
