package kibaship

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/kibashiptest"
)

func cutOff(p *kibashipv1.Project) { p.Spec.NetworkPolicy = &kibashipv1.NetworkPolicy{} }

// bindingsOf returns the RoleBindings in the namespace of a Project.
func bindingsOf(ctx context.Context, p *kibashipv1.Project) []string {
	GinkgoHelper()
	return apiserver.Names(ctx, &rbacv1.RoleBindingList{}, client.InNamespace(kibashiptest.Namespace(p.Name)))
}

var _ = Describe("Without an admission policy", Serial, func() {
	waits := func(ctx context.Context, p *kibashipv1.Project, policy string) {
		GinkgoHelper()
		expect.Settles(ctx, p, kibashipv1.ProjectFailed)
		expect.Shows(ctx, p, kibashipv1.ConditionAccessReady, metav1.ConditionFalse, kibashipv1.ReasonAdmissionPolicyMissing)
		Expect(p.Status.Message).To(And(ContainSubstring(policy), ContainSubstring("kubectl apply --server-side -f deploy/fence.yaml")))
		Expect(bindingsOf(ctx, p)).To(BeEmpty())
	}

	DescribeTable("that projects rely on, those that are new get no rights until it is there, and the others keep theirs",
		func(ctx context.Context, policy string, modify ...func(*kibashipv1.Project)) {
			live := kibashiptest.Ready(ctx, modify...)
			had := bindingsOf(ctx, live)

			restore := apiserver.RemovePolicy(ctx, policy)
			fresh := kibashiptest.Project(ctx, kibashiptest.NewName(), modify...)
			waits(ctx, fresh, policy)
			apiserver.Change(ctx, live, func() { live.Spec.Volumes.MaxStorageSize = "50Gi" })
			expect.Settles(ctx, live, kibashipv1.ProjectReady)
			Expect(bindingsOf(ctx, live)).To(Equal(had))

			By("restarting the operator")
			inprocess.Instead(clock.RealClock{}, nil, nil)
			apiserver.Change(ctx, live, func() { live.Spec.Volumes.MaxStorageSize = "60Gi" })
			expect.Settles(ctx, live, kibashipv1.ProjectReady)
			waits(ctx, fresh, policy)

			By("installing it")
			restore()
			expect.Settles(ctx, fresh, kibashipv1.ProjectReady)
			Expect(bindingsOf(ctx, fresh)).To(HaveLen(len(had)))
		},
		Entry("the fence", "berg-operator-fence"),
		Entry("the one for accounts of Projects", "berg-operator-kibaship-tenants"),
		Entry("the one for pods, with a network policy", "berg-operator-kibaship-confined-pods", cutOff),
	)

	It("for pods, a project without a network policy does not care", func(ctx context.Context) {
		apiserver.RemovePolicy(ctx, "berg-operator-kibaship-confined-pods")
		expect.Settles(ctx, kibashiptest.Project(ctx, kibashiptest.NewName()), kibashipv1.ProjectReady)
	})

	It("for bindings, nothing is bound in the namespace of Tekton", func(ctx context.Context) {
		p := kibashiptest.Ready(ctx)
		restore := apiserver.RemovePolicy(ctx, "berg-operator-fence")
		tektonStandsIn(ctx)
		expect.Shows(ctx, p, kibashipv1.ConditionTektonIntegrated, metav1.ConditionFalse, kibashipv1.ReasonAdmissionPolicyMissing)
		expect.Settles(ctx, p, kibashipv1.ProjectReady)
		Expect(apiserver.Names(ctx, &rbacv1.RoleBindingList{}, client.InNamespace("tekton-pipelines"))).To(BeEmpty())
		restore()
		expect.Shows(ctx, p, kibashipv1.ConditionTektonIntegrated, metav1.ConditionTrue, kibashipv1.ReasonCreated)

		By("removing it: what is bound stays")
		restore = apiserver.RemovePolicy(ctx, "berg-operator-fence")
		inprocess.Instead(clock.RealClock{}, nil, nil)
		apiserver.Change(ctx, p, func() { p.Spec.Volumes.MaxStorageSize = "50Gi" })
		expect.Settles(ctx, p, kibashipv1.ProjectReady)
		expect.Shows(ctx, p, kibashipv1.ConditionTektonIntegrated, metav1.ConditionTrue, kibashipv1.ReasonCreated)
		restore()
	})
})
