package bergtest

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/test/lib/apiserver"
)

// CapableNode creates a node that supports user namespaces until the spec ends. It runs no pods. Simulated nodes say nothing
// of their runtimes, so that the operator takes them for nodes without.
func CapableNode(ctx context.Context) *corev1.Node {
	GinkgoHelper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "capable-"}}
	Expect(apiserver.Client.Create(ctx, node)).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		Expect(client.IgnoreNotFound(apiserver.Client.Delete(ctx, node))).To(Succeed())
	})
	SupportUserNamespaces(ctx, node, true)
	return node
}

// SupportUserNamespaces writes what the kubelet of a node would say of its runtime.
func SupportUserNamespaces(ctx context.Context, node *corev1.Node, supported bool) {
	GinkgoHelper()
	before := node.DeepCopy()
	node.Status.RuntimeHandlers = []corev1.NodeRuntimeHandler{{Features: &corev1.NodeRuntimeHandlerFeatures{UserNamespaces: ptr.To(supported)}}}
	Expect(apiserver.Client.Status().Patch(ctx, node, client.MergeFrom(before))).To(Succeed())
}
