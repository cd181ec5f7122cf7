package expect

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/test/lib/apiserver"
)

// Cascades returns an entry of a table for each way in which a client may delete what owns other objects.
func Cascades() []TableEntry {
	var all []TableEntry
	for _, way := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan} {
		all = append(all, Entry("with propagation "+string(way), way))
	}
	return all
}

// HeldPod makes a pod stay in the API when it is deleted, as by a kubelet that hangs, until release is called, or the spec ends.
func HeldPod(ctx context.Context, pod *corev1.Pod) (release func()) {
	GinkgoHelper()
	apiserver.Change(ctx, pod, func() { pod.Finalizers = append(pod.Finalizers, "example.com/runs") })
	release = func() {
		Expect(client.IgnoreNotFound(apiserver.Client.Patch(context.Background(), pod, apiserver.RawPatch(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
	}
	DeferCleanup(release)
	return release
}

// Confined expects that a pod which is being deleted has network policies as long as it is there: longer than the garbage collector
// and the controller of namespaces take to delete them.
func Confined(ctx context.Context, pod *corev1.Pod, opts ...client.ListOption) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(get(ctx, pod)).To(Succeed())
		g.Expect(pod.DeletionTimestamp).NotTo(BeNil())
	}).Should(Succeed())
	Consistently(func(g Gomega) {
		policies := &networkingv1.NetworkPolicyList{}
		g.Expect(apiserver.Client.List(ctx, policies, append(opts, client.InNamespace(pod.Namespace))...)).To(Succeed())
		g.Expect(policies.Items).NotTo(BeEmpty())
		for _, p := range policies.Items {
			g.Expect(p.DeletionTimestamp).To(BeNil())
			g.Expect(p.OwnerReferences).To(BeEmpty())
		}
		g.Expect(get(ctx, pod)).To(Succeed())
	}).WithTimeout(8 * time.Second).Should(Succeed())
}
