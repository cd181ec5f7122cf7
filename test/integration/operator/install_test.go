package operator

import (
	"context"
	"net/http"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/deploy"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/admissionpolicy"
	"github.com/bergctf/berg-operator/internal/operator/install"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/installed"
	"github.com/bergctf/berg-operator/test/lib/launch"
)

// policyNames are the policies that the installer keeps in force.
var policyNames = []string{admissionpolicy.Fence, admissionpolicy.Fence + "-deletions", "berg-operator-own-namespace", "berg-operator-kibaship-tenants", "berg-operator-kibaship-confined-pods", "berg-operator-tunnel-confined-pods"}

// roundTripper is a function that sends a request.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// runInstaller runs the installer with its own account until the spec ends, and returns the number of its writes.
func runInstaller(ctx context.Context) (writes *atomic.Int64) {
	GinkgoHelper()
	account, err := launch.Account(ctx, restConfig, installed.Namespace, "berg-operator-installer")
	Expect(err).NotTo(HaveOccurred())
	writes = &atomic.Int64{}
	account.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method != http.MethodGet {
				writes.Add(1)
			}
			return next.RoundTrip(r)
		})
	})
	startInstaller(account)
	return writes
}

func startInstaller(account *rest.Config) {
	GinkgoHelper()
	running, stop := context.WithCancel(context.Background())
	mgr, err := install.New(running, account, config.Process{Namespace: installed.Namespace, HealthProbeBindAddress: "0"}, installed.Account, deploy.Fence, true)
	Expect(err).NotTo(HaveOccurred())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(running) }()
	DeferCleanup(func() {
		stop()
		Eventually(ended).Should(Receive(BeNil()))
	})
}

func gaps(ctx context.Context) func(Gomega) {
	return func(g Gomega) {
		for _, name := range policyNames {
			gap, err := admissionpolicy.Read(ctx, k8s, name)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(gap).To(BeEmpty(), name)
		}
	}
}

var _ = Describe("The installer of a bundle", Serial, Label("versions"), func() {
	It("puts the policies in force and binds the Role, with the rights of its own account", func(ctx context.Context) {
		inprocess.Pause()
		Expect(installed.Folder(ctx, k8s, "config/packages/olm/installer", "spec")).To(Succeed())
		for _, name := range policyNames {
			apiserver.RemovePolicy(ctx, name)
		}
		key := client.ObjectKey{Namespace: installed.Namespace, Name: installed.Account}
		class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: installed.Account}, Value: 1000000}
		Expect(client.IgnoreAlreadyExists(k8s.Create(ctx, class))).To(Succeed())
		role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"list"}}}}
		apiserver.Create(ctx, role)

		writes := runInstaller(ctx)
		Eventually(gaps(ctx)).Should(Succeed())
		binding := &rbacv1.RoleBinding{}
		Eventually(func() error { return k8s.Get(ctx, key, binding) }).Should(Succeed())
		Expect(binding.Subjects).To(Equal([]rbacv1.Subject{{Kind: "ServiceAccount", Namespace: key.Namespace, Name: key.Name}}))
		DeferCleanup(func(ctx context.Context) { Expect(client.IgnoreNotFound(k8s.Delete(ctx, binding))).To(Succeed()) })

		By("writing nothing more")
		Eventually(writes.Load).Should(BeNumerically(">=", 13))
		before := writes.Load()
		apiserver.Change(ctx, role, func() { role.Labels = map[string]string{"changed": "yes"} })
		Consistently(writes.Load).Should(Equal(before))

		By("repairing what others change, and keeping a later version")
		policy := &admissionregistrationv1.ValidatingAdmissionPolicy{}
		Expect(k8s.Get(ctx, client.ObjectKey{Name: admissionpolicy.Fence}, policy)).To(Succeed())
		apiserver.Change(ctx, policy, func() { policy.Spec.Validations = policy.Spec.Validations[1:] })
		Eventually(gaps(ctx)).Should(Succeed())
		tenants := client.ObjectKey{Name: "berg-operator-kibaship-tenants"}
		Expect(k8s.Get(ctx, tenants, policy)).To(Succeed())
		content := policy.Spec
		apiserver.Change(ctx, policy, func() {
			policy.Annotations["berg.norelect.ch/policy-revision"] = "1000"
			policy.Spec.Validations = policy.Spec.Validations[:1]
		})
		Expect(k8s.Delete(ctx, binding)).To(Succeed())
		Eventually(func() error { return k8s.Get(ctx, key, binding) }).Should(Succeed())
		Expect(k8s.Get(ctx, tenants, policy)).To(Succeed())
		Expect(policy.Spec.Validations).To(HaveLen(1), "the policy of a later version")
		apiserver.Change(ctx, policy, func() {
			policy.Annotations["berg.norelect.ch/policy-revision"] = "1"
			policy.Spec = content
		})

		By("owning what it has installed, so that it is deleted with the package")
		Expect(k8s.Get(ctx, client.ObjectKey{Name: admissionpolicy.Fence}, policy)).To(Succeed())
		Expect(policy.OwnerReferences).To(ConsistOf(HaveField("Kind", "PriorityClass")))
		Expect(binding.OwnerReferences).To(ConsistOf(HaveField("UID", role.UID)))
	})

	It("has an account that may weaken nothing else, and the operator's account may not install", func(ctx context.Context) {
		Expect(installed.Folder(ctx, k8s, "config/packages/olm/installer", "spec")).To(Succeed())
		installer := apiserver.As("system:serviceaccount:" + installed.Namespace + ":berg-operator-installer")
		ns := apiserver.Namespace(ctx)
		secrets := rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "secrets"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"list"}}}}
		Expect(k8s.Create(ctx, &secrets)).To(Succeed())
		forbidden := func(err error) {
			GinkgoHelper()
			Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
		}
		forbidden(installer.Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "b"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "secrets"},
			Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: "mallory"}},
		}))
		forbidden(installer.Delete(ctx, &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: admissionpolicy.Fence}}))

		operator := apiserver.As(apiserver.OperatorUser)
		fence := &admissionregistrationv1.ValidatingAdmissionPolicy{}
		Expect(k8s.Get(ctx, client.ObjectKey{Name: admissionpolicy.Fence}, fence)).To(Succeed())
		changed := fence.DeepCopy()
		changed.Spec.Validations = changed.Spec.Validations[1:]
		forbidden(operator.Update(ctx, changed))
		forbidden(operator.Delete(ctx, fence))
	})
})
