package operator

import (
	"context"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
)

const (
	// confinedPods ends the names of the policies of config/confined.
	confinedPods = "-confined-pods"
	// admin has all rights in the namespaces of these specs, and none elsewhere.
	admin = "admin-of-a-namespace"
)

// place is a namespace as an API group makes it.
type place struct {
	name   string
	labels map[string]string
}

// make creates the namespace with a pod in it that a node runs, and gives its admin all rights there.
func (p place) make(ctx context.Context) *corev1.Pod {
	GinkgoHelper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.name + uuid.NewString()[:8], Labels: p.labels}}
	apiserver.Create(ctx, ns)
	Expect(k8s.Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "admin"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: admin}},
	})).To(Succeed())
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "clinging"},
		Spec: corev1.PodSpec{
			NodeName: "berg-worker-0", TerminationGracePeriodSeconds: ptr.To[int64](3600),
			Containers: []corev1.Container{{Name: "a", Image: "registry.example.com/a:1"}},
		},
	}
	Expect(k8s.Create(ctx, pod)).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		Expect(client.IgnoreNotFound(k8s.Delete(ctx, pod, client.GracePeriodSeconds(0)))).To(Succeed()) // its node does not exist
	})
	return pod
}

func eviction(pod *corev1.Pod, grace int64) *policyv1.Eviction {
	return &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{GracePeriodSeconds: ptr.To(grace), DryRun: []string{metav1.DryRunAll}},
	}
}

// Every attempt has rights of RBAC, and is a dry run.
var _ = Describe("A pod that the operator confines", Label("versions"), func() {
	project := place{"confined-project-", map[string]string{kibashipv1.LabelConfined: "true"}}
	network := place{"confined-network-", map[string]string{tunnelv1.LabelManagedBy: tunnelv1.ManagedBy}}
	elsewhere := place{"confined-not-", nil}

	refused := func(err error) {
		GinkgoHelper()
		Expect(err).To(MatchError(ContainSubstring(confinedPods)))
	}

	DescribeTable("leaves the API only after its kubelet has seen its end:", func(ctx context.Context, where place) {
		pod, tenant := where.make(ctx), apiserver.As(admin)
		// The API server takes a moment before it knows the right and the policy.
		Eventually(func(ctx context.Context) error {
			return tenant.Delete(ctx, pod, client.GracePeriodSeconds(0), client.DryRunAll)
		}).WithContext(ctx).
			Should(And(MatchError(apierrors.IsForbidden, "IsForbidden"), MatchError(ContainSubstring(confinedPods))))
		By("with all others")
		refused(tenant.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(pod.Namespace), client.GracePeriodSeconds(0), client.DryRunAll))
		By("with a grace period")
		Expect(tenant.Delete(ctx, pod, client.DryRunAll)).To(Succeed())
		Expect(tenant.Delete(ctx, pod, client.GracePeriodSeconds(1), client.DryRunAll)).To(Succeed())

		By("by those who may do it in the whole cluster")
		Expect(k8s.Delete(ctx, pod, client.GracePeriodSeconds(0), client.DryRunAll)).To(Succeed())
		for _, controller := range []string{"pod-garbage-collector", "namespace-controller"} {
			trusted := apiserver.As("system:serviceaccount:kube-system:" + controller)
			Expect(trusted.Delete(ctx, pod, client.GracePeriodSeconds(0), client.DryRunAll)).To(Succeed(), controller)
		}
	},
		Entry("in the namespace of a Project", project),
		Entry("in a container network", network),
	)

	DescribeTable("is not taken for one that has ended", func(ctx context.Context, where place) {
		pod, tenant := where.make(ctx), apiserver.As(admin)
		Eventually(func(ctx context.Context) error {
			return tenant.SubResource("eviction").Create(ctx, pod, eviction(pod, 0))
		}).WithContext(ctx).Should(MatchError(ContainSubstring(confinedPods)))
		Expect(tenant.SubResource("eviction").Create(ctx, pod, eviction(pod, 1))).To(Succeed())
		for _, phase := range []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed} {
			Expect(k8s.Get(ctx, client.ObjectKeyFromObject(pod), pod)).To(Succeed())
			forged := pod.DeepCopy()
			forged.Status.Phase = phase
			refused(tenant.Status().Patch(ctx, forged, client.MergeFrom(pod), client.DryRunAll))
		}
		noted := pod.DeepCopy()
		noted.Status.Conditions = append(noted.Status.Conditions, corev1.PodCondition{Type: "example.com/gate", Status: corev1.ConditionTrue})
		Expect(tenant.Status().Patch(ctx, noted, client.MergeFrom(pod), client.DryRunAll)).To(Succeed())
	},
		Entry("in the namespace of a Project", project),
		Entry("in a container network", network),
	)

	DescribeTable("has a grace period of its own", func(ctx context.Context, where place, ok bool) {
		existing := where.make(ctx)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: existing.Namespace, Name: "other"}, Spec: *existing.Spec.DeepCopy()}
		pod.Spec.NodeName, pod.Spec.TerminationGracePeriodSeconds = "", new(int64)
		create := func(ctx context.Context) error { return k8s.Create(ctx, pod.DeepCopy(), client.DryRunAll) }
		if ok {
			Expect(create(ctx)).To(Succeed())
			return
		}
		Eventually(create).WithContext(ctx).Should(And(MatchError(apierrors.IsInvalid, "IsInvalid"), MatchError(ContainSubstring("terminationGracePeriodSeconds must be 1 or more"))))
		pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](1)
		Expect(create(ctx)).To(Succeed())
		pod.Spec.TerminationGracePeriodSeconds = nil
		Expect(create(ctx)).To(Succeed())
	},
		Entry("in the namespace of a Project", project, false),
		Entry("in a container network", network, false),
		Entry("but not elsewhere", elsewhere, true),
	)

	It("is the only one that this concerns", func(ctx context.Context) {
		pod, tenant := elsewhere.make(ctx), apiserver.As(admin)
		Eventually(func(ctx context.Context) error {
			return tenant.Delete(ctx, pod, client.GracePeriodSeconds(0), client.DryRunAll)
		}).WithContext(ctx).Should(Succeed())
		Expect(tenant.SubResource("eviction").Create(ctx, pod, eviction(pod, 0))).To(Succeed())
	})
})
