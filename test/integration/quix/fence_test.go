package quix

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/quixtest"
)

const fence = "berg-operator-fence"

// RBAC lets the operator bind the platform's role in every namespace: the policy limits that.
var _ = Describe("Without the policy that limits the operator's account", Serial, func() {
	waits := func(ctx context.Context, env *quixv1.Environment) {
		GinkgoHelper()
		expect.Settles(ctx, env, quixv1.PhaseFailed)
		expect.Shows(ctx, env, quixv1.ConditionRoleBindingReady, metav1.ConditionFalse, quixv1.ReasonAdmissionPolicyMissing)
		expect.Shows(ctx, env, quixv1.ConditionReady, metav1.ConditionFalse, quixv1.ReasonAdmissionPolicyMissing)
		Expect(env.Status.Message).To(And(ContainSubstring(fence), ContainSubstring("kubectl apply --server-side -f deploy/fence.yaml")))
		Expect(apierrors.IsNotFound(k8s.Get(ctx, bindingKey(env), &rbacv1.RoleBinding{}))).To(BeTrue())
	}

	It("environments get no binding until it is there, and those that have one keep it", func(ctx context.Context) {
		live, ending := quixtest.Environment(ctx, quixtest.NewID()), quixtest.Environment(ctx, quixtest.NewID())
		expect.Settles(ctx, live, quixv1.PhaseReady)
		expect.Settles(ctx, ending, quixv1.PhaseReady)
		binding := environmentBinding(ctx, live)

		restore := apiserver.RemovePolicy(ctx, fence)
		first := quixtest.Environment(ctx, quixtest.NewID())
		waits(ctx, first)
		apiserver.Change(ctx, live, func() { live.Spec.Labels = map[string]string{"quix.io/changed": "true"} })
		expect.Settles(ctx, live, quixv1.PhaseReady)
		Expect(environmentNamespace(ctx, live).Labels).To(HaveKey("quix.io/changed"))
		leftAlone(ctx, binding)

		By("deleting one")
		expect.Deleted(ctx, ending)

		By("restarting the operator")
		inprocess.Instead(clock.RealClock{}, nil, nil)
		second := quixtest.Environment(ctx, quixtest.NewID())
		waits(ctx, second)
		expect.Settles(ctx, live, quixv1.PhaseReady)
		leftAlone(ctx, binding)

		By("installing it")
		restore()
		for _, env := range []*quixv1.Environment{first, second} {
			expect.Settles(ctx, env, quixv1.PhaseReady)
			Expect(environmentBinding(ctx, env).RoleRef.Name).To(Equal(platformRole))
		}
	})

	It("a policy that is not enforced counts as none", func(ctx context.Context) {
		binding := apiserver.Get[admissionregistrationv1.ValidatingAdmissionPolicyBinding](ctx, client.ObjectKey{Name: fence})
		DeferCleanup(func(ctx context.Context) {
			apiserver.Change(ctx, binding, func() {
				binding.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
			})
		})
		apiserver.Change(ctx, binding, func() {
			binding.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Warn}
		})
		env := quixtest.Environment(ctx, quixtest.NewID())
		waits(ctx, env)
		Expect(env.Status.Message).To(ContainSubstring("lacks the action Deny"))
		apiserver.Change(ctx, binding, func() {
			binding.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
		})
		expect.Settles(ctx, env, quixv1.PhaseReady)
	})

	It("a policy of another content counts as none, as after an upgrade that leaves an old one", func(ctx context.Context) {
		policy := apiserver.Get[admissionregistrationv1.ValidatingAdmissionPolicy](ctx, client.ObjectKey{Name: fence})
		whole := policy.DeepCopy().Spec.Validations
		restore := func(ctx context.Context) { apiserver.Change(ctx, policy, func() { policy.Spec.Validations = whole }) }
		DeferCleanup(restore)
		apiserver.Change(ctx, policy, func() { policy.Spec.Validations = whole[1:] })
		env := quixtest.Environment(ctx, quixtest.NewID())
		waits(ctx, env)
		Expect(env.Status.Message).To(ContainSubstring("its content is not that of this version of the operator"))
		restore(ctx)
		expect.Settles(ctx, env, quixv1.PhaseReady)
	})
})
