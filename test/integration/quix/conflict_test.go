package quix

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/installed"
	"github.com/bergctf/berg-operator/test/lib/quixtest"
)

var _ = Describe("An environment whose namespace belongs to another owner", func() {
	It("fails if the namespace is unmanaged, leaves it untouched, also when the Environment is deleted, and continues when the namespace is gone", func(ctx context.Context) {
		id := quixtest.NewID()
		ns := foreignNamespace(ctx, id+"-qdep", map[string]string{"owner": "another"})
		same := &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: id + "-quix-crb", Labels: map[string]string{"quix.io/managed-by": "environment-operator"}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		}
		Expect(k8s.Create(ctx, same)).To(Succeed())

		env := quixtest.Environment(ctx, id)
		expect.Settles(ctx, env, quixv1.PhaseFailed)
		expect.Shows(ctx, env, quixv1.ConditionNamespaceReady, metav1.ConditionFalse, quixv1.ReasonNamespaceNotManaged)
		Expect(env.Status.Message).To(ContainSubstring("namespace conflict"))
		Expect(env.Status.NamespaceStatus.ResourceName).To(Equal(ns.Name))
		Expect(env.Status.NamespaceStatus.Phase).To(Equal(quixv1.ResourceFailed))
		Eventually(environmentEvents).WithContext(ctx).WithArguments(env).Should(ConsistOf("Warning/NamespaceNotManaged"))
		leftAlone(ctx, ns)
		leftAlone(ctx, same)

		By("deleting another Environment of the same ID")
		second := quixtest.Environment(ctx, id)
		expect.Settles(ctx, second, quixv1.PhaseFailed)
		expect.Deleted(ctx, second)
		leftAlone(ctx, ns)
		leftAlone(ctx, same)

		By("deleting the namespace")
		Expect(k8s.Delete(ctx, ns)).To(Succeed())
		expect.Settles(ctx, env, quixv1.PhaseReady)
		Expect(environmentNamespace(ctx, env).UID).NotTo(Equal(ns.UID))
	})

	It("never adopts one that another user made with every label and annotation before the operator saw the Environment", func(ctx context.Context) {
		id := quixtest.NewID()
		resume := inprocess.Pause()
		env := quixtest.Environment(ctx, id)
		ns := foreignNamespace(ctx, id+"-qdep", map[string]string{
			"quix.io/managed-by": "quix-environment-operator", "quix.io/environment-id": id, "quix.io/environment-name": env.Name,
		})
		apiserver.Change(ctx, ns, func() { ns.Annotations = map[string]string{"quix.io/environment-uid": string(env.UID)} })
		resume()
		expect.Settles(ctx, env, quixv1.PhaseFailed)
		expect.Shows(ctx, env, quixv1.ConditionNamespaceReady, metav1.ConditionFalse, quixv1.ReasonNamespaceOwnershipConflict)
		Expect(env.Status.Message).To(ContainSubstring("set status.namespaceUID of this Environment"))
		Expect(apiserver.Names(ctx, &rbacv1.RoleBindingList{}, client.InNamespace(ns.Name))).To(BeEmpty())

		By("an administrator saying that it belongs to the Environment")
		Expect(k8s.Status().Patch(ctx, env, apiserver.RawPatch(`{"status":{"namespaceUID":"`+string(ns.UID)+`"}}`))).To(Succeed())
		apiserver.Change(ctx, ns, func() { ns.Annotations["touched"] = "yes" })
		expect.Settles(ctx, env, quixv1.PhaseReady)
		expect.Deleted(ctx, env)
		expect.Gone(ctx, ns)
	})

	It("never adopts a namespace that only has the right labels", func(ctx context.Context) {
		id := quixtest.NewID()
		for _, labels := range []map[string]string{
			{"quix.io/managed-by": "quix-environment-operator"},
			{"quix.io/managed-by": "quix-environment-operator", "quix.io/environment-id": id, "quix.io/environment-name": "forged-" + id},
		} {
			ns := foreignNamespace(ctx, id+"-qdep", labels)
			env := quixtest.Environment(ctx, id, func(env *quixv1.Environment) { env.GenerateName, env.Name = "", "forged-"+id })
			expect.Settles(ctx, env, quixv1.PhaseFailed)
			expect.Shows(ctx, env, quixv1.ConditionNamespaceReady, metav1.ConditionFalse, quixv1.ReasonNamespaceOwnershipConflict)
			expect.Deleted(ctx, env)
			leftAlone(ctx, ns)
			Eventually(environmentEvents).WithContext(ctx).WithArguments(env).Should(ConsistOf("Warning/NamespaceOwnershipConflict", "Warning/NamespaceEnvironmentIDMismatch"))
			Expect(k8s.Delete(ctx, ns)).To(Succeed())
			Eventually(func() bool {
				return apierrors.IsNotFound(k8s.Get(ctx, client.ObjectKeyFromObject(ns), &corev1.Namespace{}))
			}).Should(BeTrue())
		}
	})

	It("fails while the namespace belongs to another Environment of its ID, and continues when that one is gone", func(ctx context.Context) {
		id := quixtest.NewID()
		first := quixtest.Environment(ctx, id)
		expect.Settles(ctx, first, quixv1.PhaseReady)
		second := quixtest.Environment(ctx, id)
		expect.Settles(ctx, second, quixv1.PhaseFailed)
		expect.Shows(ctx, second, quixv1.ConditionNamespaceReady, metav1.ConditionFalse, quixv1.ReasonNamespaceOwnershipConflict)
		Expect(second.Status.Message).To(ContainSubstring(first.Name))
		ns := environmentNamespace(ctx, first)
		third := quixtest.Environment(ctx, id)
		expect.Settles(ctx, third, quixv1.PhaseFailed)
		expect.Deleted(ctx, third)
		leftAlone(ctx, ns)
		leftAlone(ctx, environmentBinding(ctx, first))

		expect.Deleted(ctx, first)
		expect.Settles(ctx, second, quixv1.PhaseReady)
		Expect(environmentNamespace(ctx, second).Annotations).To(HaveKeyWithValue("quix.io/environment-uid", string(second.UID)))
	})

	It("releases its namespace when an administrator removes the label, and revokes the platform's rights", func(ctx context.Context) {
		env := quixtest.Ready(ctx)
		ns := environmentNamespace(ctx, env)
		DeferCleanup(func(ctx context.Context) { Expect(client.IgnoreNotFound(k8s.Delete(ctx, ns))).To(Succeed()) })
		Expect(k8s.Patch(ctx, ns, client.RawPatch("application/merge-patch+json",
			[]byte(`{"metadata":{"labels":{"quix.io/managed-by":null},"ownerReferences":null}}`)))).To(Succeed())
		expect.Shows(ctx, env, quixv1.ConditionNamespaceReady, metav1.ConditionFalse, quixv1.ReasonNamespaceNotManaged)
		expect.Deleted(ctx, env)
		leftAlone(ctx, ns)
		Expect(apierrors.IsNotFound(k8s.Get(ctx, bindingKey(env), &rbacv1.RoleBinding{}))).To(BeTrue(), "the platform still has rights there")
	})
})

var _ = Describe("After a restart, an environment", func() {
	It("keeps its names under another suffix, and leaves the binding of another owner untouched", func(ctx context.Context) {
		old := quixtest.Ready(ctx)
		robbed := quixtest.Ready(ctx)

		inprocess.Pause()
		foreign := environmentBinding(ctx, robbed)
		Expect(k8s.Delete(ctx, foreign)).To(Succeed())
		foreign = &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: foreign.Namespace, Name: foreign.Name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		}
		Expect(k8s.Create(ctx, foreign)).To(Succeed())
		ns, binding := environmentNamespace(ctx, old), environmentBinding(ctx, old)

		inprocess.Restart(map[string]string{"NAMESPACE_SUFFIX": "-other"}, nil)
		fresh := quixtest.Ready(ctx)
		Expect(fresh.Status.NamespaceStatus.ResourceName).To(Equal(fresh.Spec.ID + "-other"))
		leftAlone(ctx, ns)
		leftAlone(ctx, binding)

		expect.Settles(ctx, robbed, quixv1.PhaseFailed)
		expect.Shows(ctx, robbed, quixv1.ConditionRoleBindingReady, metav1.ConditionFalse, quixv1.ReasonRoleBindingConflict)
		Expect(robbed.Status.NamespaceStatus.Phase).To(Equal(quixv1.ResourceActive))
		leftAlone(ctx, foreign)
		Expect(k8s.Delete(ctx, foreign)).To(Succeed())
		expect.Settles(ctx, robbed, quixv1.PhaseReady)

		By("deleting the old one under the new suffix")
		expect.Deleted(ctx, old)
		Expect(apierrors.IsNotFound(k8s.Get(ctx, client.ObjectKeyFromObject(ns), ns))).To(BeTrue())
	})

	It("must match ENVIRONMENT_REGEX only when it is new", func(ctx context.Context) {
		old := quixtest.Ready(ctx)
		inprocess.Pause()
		inprocess.Instead(clock.RealClock{}, map[string]string{"POD_NAMESPACE": installed.Namespace, "ENVIRONMENT_REGEX": "^only-"}, nil)
		refused := quixtest.Environment(ctx, quixtest.NewID())
		expect.Settles(ctx, refused, quixv1.PhaseFailed)
		expect.Shows(ctx, refused, quixv1.ConditionNamespaceReady, metav1.ConditionFalse, quixv1.ReasonInvalidEnvironmentID)
		Expect(refused.Status.Message).To(ContainSubstring("invalid environment ID"))
		Expect(apierrors.IsNotFound(k8s.Get(ctx, client.ObjectKey{Name: refused.Spec.ID + "-qdep"}, &corev1.Namespace{}))).To(BeTrue())
		accepted := quixtest.Environment(ctx, "only-"+quixtest.NewID())
		expect.Settles(ctx, accepted, quixv1.PhaseReady)
		apiserver.Change(ctx, old, func() { old.Spec.Labels = map[string]string{"quix.io/a": "1"} })
		expect.Settles(ctx, old, quixv1.PhaseReady)
	})
})
