package tunnel

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/tunneltest"
)

var _ = Describe("Without an admission policy", Serial, func() {
	// begin creates a network that need not start.
	begin := func(ctx context.Context, modify ...func(*tunnelv1.ContainerNetwork)) *tunnelv1.ContainerNetwork {
		GinkgoHelper()
		n := tunneltest.NewNetwork(modify...)
		Expect(k8s.Create(ctx, n)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { tunneltest.Delete(ctx, n) })
		return n
	}
	waits := func(ctx context.Context, n *tunnelv1.ContainerNetwork, policy string) {
		GinkgoHelper()
		expect.Shows(ctx, n, tunnelv1.ConditionConfined, "False", tunnelv1.ReasonAdmissionPolicyMissing)
		expect.Shows(ctx, n, tunnelv1.ConditionReady, "False", tunnelv1.ReasonAdmissionPolicyMissing)
		Expect(n.Status.State).To(Equal(tunnelv1.NetworkFailedToStart))
		Expect(n.Status.Message).To(And(ContainSubstring(policy), ContainSubstring("kubectl apply --server-side -f deploy/fence.yaml")))
	}

	DescribeTable("that networks rely on, none is made until it is there, and those that run continue",
		func(ctx context.Context, policy string) {
			live := tunneltest.Network(ctx)

			restore := apiserver.RemovePolicy(ctx, policy)
			fresh := begin(ctx)
			waits(ctx, fresh, policy)
			expect.Shows(ctx, fresh, tunnelv1.ConditionNamespaceReady, "Unknown", tunnelv1.ReasonWaiting)
			Expect(apierrors.IsNotFound(k8s.Get(ctx, client.ObjectKey{Name: fresh.Status.NetworkName}, &corev1.Namespace{}))).To(BeTrue())

			By("restarting the operator, and using a network that runs")
			inprocess.Instead(clock.RealClock{}, nil, nil)
			p := tunneltest.Proxy(ctx, live.Name, tunneltest.To("web", tunneltest.NewEcho(0).Port))
			tunneltest.Reaches(ctx, p, tunnelv1.StateRunning)
			tunneltest.NetworkReaches(ctx, live, tunnelv1.NetworkRunning)
			expect.Shows(ctx, live, tunnelv1.ConditionReady, "True", tunnelv1.ReasonNetworkReady)
			waits(ctx, fresh, policy)

			By("installing it")
			restore()
			tunneltest.NetworkReaches(ctx, fresh, tunnelv1.NetworkRunning)
		},
		Entry("the fence", "berg-operator-fence"),
		Entry("the one for pods", "berg-operator-tunnel-confined-pods"),
	)

	It("for pods, a network in a namespace of others starts: its pods are not the operator's to confine", func(ctx context.Context) {
		apiserver.RemovePolicy(ctx, "berg-operator-tunnel-confined-pods")
		existing := func(namespace string) func(*tunnelv1.ContainerNetwork) {
			return func(n *tunnelv1.ContainerNetwork) { n.Spec.NetworkName, n.Spec.Mode = namespace, tunnelv1.ModeExisting }
		}
		tunneltest.Network(ctx, existing(tunneltest.Existing(ctx)))

		By("removing the fence: it binds its rights in no other one")
		restore := apiserver.RemovePolicy(ctx, "berg-operator-fence")
		foreign := tunneltest.Existing(ctx)
		other := begin(ctx, existing(foreign))
		waits(ctx, other, "berg-operator-fence")
		Expect(apiserver.Names(ctx, &rbacv1.RoleBindingList{}, client.InNamespace(foreign))).To(BeEmpty())
		restore()
		tunneltest.NetworkReaches(ctx, other, tunnelv1.NetworkRunning)
	})
})
