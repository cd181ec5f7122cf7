package tunnel

import (
	"context"
	"strings"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/deployed"
	"github.com/bergctf/berg-operator/test/lib/expect"
)

const (
	// graceSeconds is how long the program of a tenant goes on after the signal to end, which it ignores: longer than a namespace
	// takes to end without pods.
	graceSeconds = 45
	// unconfined is how long the program is watched after its network policy is gone.
	unconfined = 10 * time.Second
)

// These specs need a cluster that enforces network policies. Instances have theirs in test/e2e/berg.
var _ = Describe("While a tenant's namespace ends", Label("network", "ending", "attack"), Serial, func() {
	DescribeTable("its pods reach nothing that they did not reach before, also if the tenant deletes them without a grace period",
		func(ctx SpecContext, begin func(context.Context) (owner client.Object, namespace string), cascade string) {
			where := stage(ctx)
			counter := outsider(ctx, where, "counter", corev1.EnvVar{Name: "TOOLBOX_COUNT", Value: ":9002"})
			address := counter.Status.PodIP + ":9002"
			clients := func() string {
				GinkgoHelper()
				text, err := world.Plain.CoreV1().Pods(counter.Namespace).GetLogs(counter.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
				Expect(err).NotTo(HaveOccurred())
				return string(text)
			}
			counted := func(pod *corev1.Pod) string { return "client " + pod.Status.PodIP + ":" }

			By("counting a pod that no policy selects")
			neighbour := outsider(ctx, where, "neighbour", corev1.EnvVar{Name: "TOOLBOX_DIAL", Value: address})
			expect.Until(ctx, deployed.ReactLimit, func(context.Context) error {
				return deployed.ErrorIf(!strings.Contains(clients(), counted(neighbour)), "the neighbour is not counted")
			})
			Expect(world.Delete(ctx, neighbour)).To(Succeed())

			By("a pod of the tenant that dials until its end")
			owner, namespace := begin(ctx)
			Expect(world.Create(ctx, &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "tenant"},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
				Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "tenant"}},
			})).To(Succeed())
			tenant := apiserver.As("tenant")
			pod := ready(ctx, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "clinging"},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: ptr.To[int64](graceSeconds),
					Containers:                    []corev1.Container{toolbox(corev1.EnvVar{Name: "TOOLBOX_DIAL", Value: address})},
				},
			})

			By("the tenant deleting it again and again, while the namespace is deleted")
			world.KubectlDelete(ctx, owner, cascade)
			expect.Until(ctx, deployed.DeleteLimit, func(ctx context.Context) error {
				_ = tenant.Delete(ctx, pod, client.GracePeriodSeconds(0))
				err := world.Get(ctx, client.ObjectKeyFromObject(pod), &corev1.Pod{})
				if apierrors.IsNotFound(err) {
					return nil
				}
				return deployed.ErrorIf(err == nil, "the pod of the tenant is there")
			})
			expect.GoneWithin(ctx, owner, deployed.DeleteLimit)
			Consistently(clients).WithTimeout(unconfined).WithPolling(500 * time.Millisecond).ShouldNot(ContainSubstring(counted(pod)))
		},
		endings("in a container network", newNetwork), endings("in a KibaShip Project", newProject),
	)
})

// endings returns an entry for each way in which a tenant may delete what owns the namespace.
func endings(where string, begin func(context.Context) (owner client.Object, namespace string)) (all []TableEntry) {
	for _, cascade := range deployed.Cascades {
		all = append(all, Entry(where+" that is deleted with --cascade="+cascade, begin, cascade, SpecTimeout(deployed.SpecLimit)))
	}
	return all
}

// stage makes a namespace for pods that no policy selects. It is deleted at the end of the spec.
func stage(ctx context.Context) string {
	GinkgoHelper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-", Labels: map[string]string{deployed.StageLabel: ""}}}
	Expect(world.Create(ctx, ns)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(world.Delete(ctx, ns))).To(Succeed()) }, NodeTimeout(deployed.ReactLimit))
	return ns.Name
}

// outsider starts a pod of the toolbox, and waits until it is ready.
func outsider(ctx context.Context, namespace, name string, env corev1.EnvVar) *corev1.Pod {
	GinkgoHelper()
	return ready(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.PodSpec{TerminationGracePeriodSeconds: ptr.To[int64](1), Containers: []corev1.Container{toolbox(env)}},
	})
}

func toolbox(env corev1.EnvVar) corev1.Container {
	return corev1.Container{Name: "toolbox", Image: deployed.ToolboxImage, ImagePullPolicy: corev1.PullIfNotPresent, Env: []corev1.EnvVar{env}}
}

// ready creates a pod, and waits until it is ready.
func ready(ctx context.Context, pod *corev1.Pod) *corev1.Pod {
	GinkgoHelper()
	Expect(world.Create(ctx, pod)).To(Succeed())
	expect.Refreshed(ctx, deployed.StartLimit, pod, func() error {
		return deployed.ErrorIf(!deployed.PodReady(pod), "pod "+pod.Name+" is not ready")
	})
	return pod
}

func newNetwork(ctx context.Context) (owner client.Object, namespace string) {
	GinkgoHelper()
	n := &tunnelv1.ContainerNetwork{ObjectMeta: metav1.ObjectMeta{Name: "net-" + uuid.NewString()[:8]}}
	Expect(world.Create(ctx, n)).To(Succeed())
	DeferCleanup(removed(n), NodeTimeout(deployed.DeleteLimit))
	expect.Refreshed(ctx, deployed.StartLimit, n, func() error {
		return deployed.ErrorIf(n.Status.State != tunnelv1.NetworkRunning, "the network does not run: "+n.Status.Message)
	})
	return n, n.Status.NetworkName
}

func newProject(ctx context.Context) (owner client.Object, namespace string) {
	GinkgoHelper()
	everything := []string{rbacv1.ResourceAll}
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: kibashipv1.ProjectAdmin},
		Rules:      []rbacv1.PolicyRule{{APIGroups: everything, Resources: everything, Verbs: everything}},
	}
	Expect(client.IgnoreAlreadyExists(world.Create(ctx, role))).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(world.Delete(ctx, role))).To(Succeed()) }, NodeTimeout(deployed.ReactLimit))
	p := &kibashipv1.Project{
		ObjectMeta: metav1.ObjectMeta{Name: "p" + uuid.NewString()[:6], Labels: map[string]string{kibashipv1.LabelUUID: uuid.NewString()}},
		Spec:       kibashipv1.ProjectSpec{NetworkPolicy: &kibashipv1.NetworkPolicy{Egress: kibashipv1.EgressNone}},
	}
	Expect(world.Create(ctx, p)).To(Succeed())
	DeferCleanup(removed(p), NodeTimeout(deployed.DeleteLimit))
	expect.ReachesWithin(ctx, p, kibashipv1.ProjectReady, deployed.StartLimit)
	return p, p.Status.NamespaceName
}

// removed deletes what a spec that failed has left.
func removed(o client.Object) func(SpecContext) {
	return func(ctx SpecContext) {
		Expect(client.IgnoreNotFound(world.Delete(ctx, o))).To(Succeed())
		expect.GoneWithin(ctx, o, deployed.DeleteLimit)
	}
}
