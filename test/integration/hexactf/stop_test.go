package hexactf

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/hexactftest"
)

var _ = Describe("The end of a challenge", func() {
	It("keeps its network policies until its last pod is gone", func(ctx context.Context) {
		ns := hexactftest.Define(ctx, "web", hexactftest.OneComponent)
		c := running(ctx, ns, "web")
		part := client.MatchingLabels{hexactfv1.LabelPartOf: c.Name}
		pods := apiserver.List[corev1.PodList](ctx, client.InNamespace(ns), part)
		Expect(pods.Items).To(HaveLen(1))
		pod := &pods.Items[0]
		Expect(*pod.Spec.TerminationGracePeriodSeconds).To(BeNumerically("==", 2))
		held := func() { // as by a kubelet that hangs
			apiserver.Change(ctx, pod, func() { pod.Finalizers = []string{"example.org/runs"} })
		}
		held()
		DeferCleanup(func(ctx context.Context) {
			Expect(client.IgnoreNotFound(k8s.Patch(ctx, pod, apiserver.RawPatch(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
		})

		hexactftest.Delete(ctx, c)
		Eventually(func(g Gomega) {
			var deployments appsv1.DeploymentList
			g.Expect(k8s.List(ctx, &deployments, client.InNamespace(ns), part)).To(Succeed())
			g.Expect(deployments.Items).To(HaveLen(1))
			g.Expect(*deployments.Items[0].Spec.Replicas).To(BeZero())
			g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(pod), pod)).To(Succeed())
			g.Expect(pod.DeletionTimestamp).NotTo(BeNil())
		}).Should(Succeed())
		Consistently(func(g Gomega) {
			var policies networkingv1.NetworkPolicyList
			g.Expect(k8s.List(ctx, &policies, client.InNamespace(ns), part)).To(Succeed())
			g.Expect(policies.Items).NotTo(BeEmpty())
			for _, p := range policies.Items {
				g.Expect(p.DeletionTimestamp).To(BeNil())
			}
			g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(c), c)).To(Succeed())
			g.Expect(c.Finalizers).To(ContainElement(hexactfv1.Finalizer))
		}).WithTimeout(3 * time.Second).Should(Succeed())
		Expect(c.Status.CurrentStatus.State).To(Equal(hexactfv1.StateTerminating))

		apiserver.RemoveFinalizers(ctx, pod)
		expect.Gone(ctx, c)
	})
})

var _ = Describe("A challenge whose network policy cannot be put in place", func() {
	It("has no pods until it can, and says so", func(ctx context.Context) {
		ns := hexactftest.Define(ctx, "web", hexactftest.OneComponent)
		c := running(ctx, ns, "web")
		part := client.MatchingLabels{hexactfv1.LabelPartOf: c.Name}
		policies := apiserver.List[networkingv1.NetworkPolicyList](ctx, client.InNamespace(ns), part)
		Expect(policies.Items).To(HaveLen(1))
		lift := apiserver.Deny(ctx, apiserver.Denial{
			Name: "policies-" + ns, Group: networkingv1.GroupName, Resources: []string{"networkpolicies"}, Operation: "CREATE",
			Conditions: []string{"request.namespace == '" + ns + "'"},
		}, func() error {
			return k8s.Create(ctx, &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "probe"}}, client.DryRunAll)
		})
		Expect(k8s.Delete(ctx, &policies.Items[0])).To(Succeed())
		expect.Shows(ctx, c, hexactfv1.ConditionResourcesCreated, metav1.ConditionFalse, outcome.ReasonRefused)
		Expect(c.Status.CurrentStatus.ErrorMsg).To(And(ContainSubstring(apiserver.Refusal), ContainSubstring("no pod of the challenge runs")))
		Eventually(apiserver.Names).WithArguments(ctx, &corev1.PodList{}, client.InNamespace(ns), part).Should(BeEmpty())

		lift()
		expect.Shows(ctx, c, hexactfv1.ConditionAvailable, metav1.ConditionTrue, hexactfv1.ReasonAvailable)
		Expect(apiserver.Names(ctx, &corev1.PodList{}, client.InNamespace(ns), part)).To(HaveLen(1))
		Expect(apiserver.Names(ctx, &networkingv1.NetworkPolicyList{}, client.InNamespace(ns), part)).To(HaveLen(1))
	})
})
