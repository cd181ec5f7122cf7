package kibaship

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/kibashiptest"
)

var _ = Describe("The end of a project", func() {
	// begin creates a project with a network policy and a pod that does not end.
	begin := func(ctx context.Context) (p *kibashipv1.Project, pod *corev1.Pod, release func()) {
		GinkgoHelper()
		p = kibashiptest.Ready(ctx, func(p *kibashipv1.Project) {
			p.Spec.NetworkPolicy = &kibashipv1.NetworkPolicy{Egress: kibashipv1.EgressNone}
		})
		pod = &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: p.Status.NamespaceName, Name: "clinging"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.com/c"}}},
		}
		Expect(k8s.Create(ctx, pod)).To(Succeed())
		return p, pod, expect.HeldPod(ctx, pod)
	}

	DescribeTable("keeps its network policy until its last pod is gone", func(ctx context.Context, cascade metav1.DeletionPropagation) {
		p, pod, release := begin(ctx)
		Expect(k8s.Delete(ctx, p, client.PropagationPolicy(cascade))).To(Succeed())
		expect.Confined(ctx, pod)
		release()
		expect.Gone(ctx, p)
	}, expect.Cascades())

	It("by its namespace keeps it too", func(ctx context.Context) {
		p, pod, release := begin(ctx)
		ns := apiserver.Get[corev1.Namespace](ctx, client.ObjectKey{Name: p.Status.NamespaceName})
		Expect(k8s.Delete(ctx, ns)).To(Succeed())
		expect.Confined(ctx, pod)
		release()
		expect.Gone(ctx, pod)
		expect.Settles(ctx, p, kibashipv1.ProjectReady) // in a new namespace
		expect.Deleted(ctx, p)
	})
})

var _ = Describe("A project that names no level of Pod Security", func() {
	It("has one, and its account is not root on the nodes", func(ctx context.Context) {
		p := kibashiptest.Ready(ctx)
		ns := apiserver.Get[corev1.Namespace](ctx, client.ObjectKey{Name: p.Status.NamespaceName})
		Expect(ns.Labels).To(HaveKeyWithValue("pod-security.kubernetes.io/enforce", "baseline"))
		account := apiserver.As("system:serviceaccount:" + ns.Name + ":project-" + p.Name + "-sa-kibaship-com")
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "root"},
			Spec:       corev1.PodSpec{HostPID: true, Containers: []corev1.Container{{Name: "c", Image: "example.com/c"}}},
		}
		Expect(account.Create(ctx, pod)).To(MatchError(ContainSubstring("violates PodSecurity")))
		Expect(account.Patch(ctx, ns, apiserver.RawPatch(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"privileged"}}}`))).NotTo(Succeed())
		everything := &rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "everything"},
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}},
		}
		Expect(account.Create(ctx, everything)).NotTo(Succeed())
	})
})
