package kibaship

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/kibashiptest"
)

// tektonStandsIn makes what a Project looks at of Tekton, its namespace and the definition of
// Tasks, until the spec ends. A real Tekton is in test/e2e/kibaship.
func tektonStandsIn(ctx context.Context) (remove func(context.Context)) {
	GinkgoHelper()
	definition := apiserver.Object(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: tasks.tekton.dev}
spec:
  group: tekton.dev
  names: {kind: Task, plural: tasks}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tekton-pipelines"}}
	Expect(k8s.Create(ctx, ns)).To(Succeed())
	remove = func(ctx context.Context) {
		Expect(client.IgnoreNotFound(k8s.Delete(ctx, definition))).To(Succeed())
		Expect(client.IgnoreNotFound(k8s.Delete(ctx, ns))).To(Succeed())
		expect.Gone(ctx, definition)
		expect.Gone(ctx, ns)
	}
	DeferCleanup(remove)
	apiserver.InstallDefinition(ctx, definition)
	return remove
}

var _ = Describe("Tekton", Serial, func() {
	It("is joined when it appears, left when its project goes, and missed when it is removed", func(ctx context.Context) {
		p := kibashiptest.Ready(ctx)
		expect.Shows(ctx, p, kibashipv1.ConditionTektonIntegrated, metav1.ConditionFalse, kibashipv1.ReasonTektonNotInstalled)

		remove := tektonStandsIn(ctx)
		expect.Shows(ctx, p, kibashipv1.ConditionTektonIntegrated, metav1.ConditionTrue, kibashipv1.ReasonCreated)
		reader := apiserver.Get[rbacv1.Role](ctx, client.ObjectKey{Namespace: "tekton-pipelines", Name: "tekton-tasks-reader"})
		Expect(reader.Rules).To(Equal([]rbacv1.PolicyRule{{APIGroups: []string{"tekton.dev"}, Resources: []string{"tasks"}, Verbs: []string{"get", "list", "watch"}}}))
		Expect(reader.Labels).To(HaveKeyWithValue("platform.kibaship.com/managed-by", "kibaship-operator"))
		binding := &rbacv1.RoleBinding{}
		key := client.ObjectKey{Namespace: "tekton-pipelines", Name: "project-" + p.Name + "-tekton-binding-kibaship-com"}
		Expect(k8s.Get(ctx, key, binding)).To(Succeed())
		Expect(binding.Labels).To(HaveKeyWithValue("platform.kibaship.com/uuid", p.Labels[kibashipv1.LabelUUID]))
		tasks := authorizationv1.ResourceAttributes{Namespace: "tekton-pipelines", Group: "tekton.dev", Resource: "tasks", Verb: "get"}
		Expect(apiserver.May(ctx, accountOf(p.Name), tasks)).To(BeTrue())
		for _, more := range []authorizationv1.ResourceAttributes{
			{Namespace: "tekton-pipelines", Group: "tekton.dev", Resource: "tasks", Verb: "create"},
			{Namespace: "tekton-pipelines", Resource: "secrets", Verb: "get"},
		} {
			Expect(apiserver.May(ctx, accountOf(p.Name), more)).To(BeFalse(), "%+v", more)
		}

		By("taking the binding, and the Role that all share, away")
		Expect(k8s.Delete(ctx, binding)).To(Succeed())
		Expect(k8s.Delete(ctx, reader)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(k8s.Get(ctx, key, &rbacv1.RoleBinding{})).To(Succeed())
			g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(reader), &rbacv1.Role{})).To(Succeed())
		}).Should(Succeed())

		By("removing the operator from its own binding: it comes back, and the subject that was put there stays")
		shared := apiserver.Get[rbacv1.RoleBinding](ctx, client.ObjectKey{Namespace: "tekton-pipelines", Name: "kibaship-operator-tekton-binding"})
		operators, other := shared.Subjects, rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "another-user"}
		Expect(operators).To(HaveLen(1))
		apiserver.Change(ctx, shared, func() { shared.Subjects = []rbacv1.Subject{other} })
		expect.Becomes(ctx, shared, func(g Gomega) {
			g.Expect(shared.Subjects).To(ConsistOf(other, operators[0]))
		})

		By("deleting one of two projects: the Role stays")
		second := kibashiptest.Project(ctx, kibashiptest.NewName())
		expect.Shows(ctx, second, kibashipv1.ConditionTektonIntegrated, metav1.ConditionTrue, kibashipv1.ReasonCreated)
		expect.Deleted(ctx, p)
		Expect(apierrors.IsNotFound(k8s.Get(ctx, key, &rbacv1.RoleBinding{}))).To(BeTrue())
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(reader), &rbacv1.Role{})).To(Succeed())

		By("removing Tekton")
		remove(ctx)
		expect.Shows(ctx, second, kibashipv1.ConditionTektonIntegrated, metav1.ConditionFalse, kibashipv1.ReasonTektonNotInstalled)
		expect.Settles(ctx, second, kibashipv1.ProjectReady)
	})

	It("is waited for where TEKTON_MODE is required, and not looked at where it is off", func(ctx context.Context) {
		inprocess.Restart(map[string]string{"TEKTON_MODE": "required"}, nil)
		p := kibashiptest.Project(ctx, kibashiptest.NewName())
		expect.Settles(ctx, p, kibashipv1.ProjectFailed)
		expect.Shows(ctx, p, kibashipv1.ConditionReady, metav1.ConditionFalse, kibashipv1.ReasonTektonNotInstalled)
		tektonStandsIn(ctx)
		expect.Settles(ctx, p, kibashipv1.ProjectReady)
		inprocess.Restart(map[string]string{"TEKTON_MODE": "off"}, nil)
		other := kibashiptest.Ready(ctx)
		expect.Shows(ctx, other, kibashipv1.ConditionTektonIntegrated, metav1.ConditionFalse, kibashipv1.ReasonTektonOff)
	})

	It("leaves another owner's binding under the project's name untouched", func(ctx context.Context) {
		tektonStandsIn(ctx)
		name := kibashiptest.NewName()
		foreign := &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: "tekton-pipelines", Name: "project-" + name + "-tekton-binding-kibaship-com"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "of-another"},
		}
		Expect(k8s.Create(ctx, foreign)).To(Succeed())
		p := kibashiptest.Project(ctx, name)
		expect.Shows(ctx, p, kibashipv1.ConditionTektonIntegrated, metav1.ConditionFalse, kibashipv1.ReasonOwnershipConflict)
		expect.Settles(ctx, p, kibashipv1.ProjectReady)
		expect.Deleted(ctx, p)
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(foreign), foreign)).To(Succeed())
		Expect(foreign.RoleRef.Name).To(Equal("of-another"))
	})
})
