package quix

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/quixtest"
)

// former is what the operator that this one replaces leaves behind, which is created while no operator runs: no UID annotation, a controller, a status without proof.
type former struct {
	env     *quixv1.Environment
	ns      *corev1.Namespace
	binding *rbacv1.RoleBinding
	data    *corev1.ConfigMap
}

func formerEnvironment(ctx context.Context) former {
	GinkgoHelper()
	id := quixtest.NewID()
	f := former{env: quixtest.Environment(ctx, id)}
	labels := func(managedBy string) map[string]string {
		return map[string]string{quixv1.LabelManagedBy: managedBy, quixv1.LabelEnvironmentID: id, quixv1.LabelEnvironmentName: f.env.Name}
	}
	f.ns = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: id + "-qdep", Labels: labels(quixv1.ManagedBy),
		Annotations: map[string]string{quixv1.AnnotationCreatedBy: quixv1.ManagedBy, quixv1.AnnotationResourceName: f.env.Name},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: quixv1.GroupVersion.String(), Kind: "Environment", Name: f.env.Name, UID: f.env.UID, Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
		}},
	}}
	f.ns.Labels[quixv1.LabelPlatform] = quixv1.Platform
	f.binding = &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.ns.Name, Name: id + "-quix-crb", Labels: labels(quixv1.RoleBindingManagedBy)},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: platformRole},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "quix-environment", Name: "quix-platform-account"}},
	}
	f.data = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: f.ns.Name, Name: "tenant"}, Data: map[string]string{"kept": "yes"}}
	for _, o := range []client.Object{f.ns, f.binding, f.data} {
		Expect(k8s.Create(ctx, o)).To(Succeed())
	}
	status := fmt.Sprintf(`{"status":{"phase":"Ready","namespaceStatus":{"phase":"Active","resourceName":%q},"roleBindingStatus":{"phase":"Active","resourceName":%q}}}`,
		f.ns.Name, f.binding.Name)
	Expect(k8s.Status().Patch(ctx, f.env, client.RawPatch(types.MergePatchType, []byte(status)))).To(Succeed())
	return f
}

var _ = Describe("An Environment of the operator that this one replaces", func() {
	It("keeps its namespace and all in it, and ends like any other", func(ctx context.Context) {
		resume := inprocess.Pause()
		f := formerEnvironment(ctx)
		resume()
		expect.Settles(ctx, f.env, quixv1.PhaseReady)
		ns := apiserver.Get[corev1.Namespace](ctx, client.ObjectKeyFromObject(f.ns))
		Expect(ns.UID).To(Equal(f.ns.UID))
		Expect(ns.Annotations).To(HaveKeyWithValue(quixv1.AnnotationUID, string(f.env.UID)))
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(f.env), f.env)).To(Succeed())
		Expect(f.env.Status.NamespaceUID).To(Equal(f.ns.UID))
		binding := apiserver.Get[rbacv1.RoleBinding](ctx, client.ObjectKeyFromObject(f.binding))
		Expect(binding.UID).To(Equal(f.binding.UID))
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(f.data), f.data)).To(Succeed())

		Expect(k8s.Delete(ctx, f.env)).To(Succeed())
		expect.Gone(ctx, f.env)
		expect.Gone(ctx, f.ns)
	})

	It("says why it cannot be taken over, until it can", func(ctx context.Context) {
		resume := inprocess.Pause()
		f := formerEnvironment(ctx)
		refuse := func(o client.Object, group, resource string) (lift func()) {
			return apiserver.Deny(ctx, apiserver.Denial{
				Name: f.ns.Name + "-" + resource, Group: group, Resources: []string{resource}, Operation: "UPDATE",
				Labels: map[string]string{quixv1.LabelEnvironmentID: f.ns.Labels[quixv1.LabelEnvironmentID]},
			}, func() error {
				changed := o.DeepCopyObject().(client.Object)
				if err := k8s.Get(ctx, client.ObjectKeyFromObject(o), changed); err != nil {
					return err
				}
				changed.SetAnnotations(map[string]string{"example.com/note": "changed"})
				return k8s.Update(ctx, changed, client.DryRunAll)
			})
		}
		liftNamespace := refuse(f.ns, "", "namespaces")
		liftBinding := refuse(f.binding, rbacv1.GroupName, "rolebindings")
		resume()
		expect.Shows(ctx, f.env, quixv1.ConditionNamespaceReady, metav1.ConditionFalse, quixv1.ReasonNamespaceReconciliationFailed)
		expect.Says(ctx, f.env, apiserver.Refusal)
		liftNamespace()
		expect.Shows(ctx, f.env, quixv1.ConditionRoleBindingReady, metav1.ConditionFalse, quixv1.ReasonRoleBindingReconciliationFailed)
		expect.Says(ctx, f.env, apiserver.Refusal)
		liftBinding()
		expect.Settles(ctx, f.env, quixv1.PhaseReady)
	})

	It("that is deleted before it is taken over ends with its namespace", func(ctx context.Context) {
		resume := inprocess.Pause()
		f := formerEnvironment(ctx)
		Expect(k8s.Patch(ctx, f.env, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"finalizers":[%q]}}`, quixv1.Finalizer)))).To(Succeed())
		Expect(k8s.Delete(ctx, f.env)).To(Succeed())
		resume()
		expect.Gone(ctx, f.env)
		expect.Gone(ctx, f.ns)
	})
})
