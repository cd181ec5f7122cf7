package hexactf

import (
	"context"

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
	// begin starts a challenge with two components, one of whose pods does not end.
	begin := func(ctx context.Context) (c *hexactfv1.Challenge, pod *corev1.Pod, release func()) {
		GinkgoHelper()
		ns := hexactftest.Define(ctx, "web", hexactftest.TwoComponents)
		c = running(ctx, ns, "web")
		pods := apiserver.List[corev1.PodList](ctx, client.InNamespace(ns), client.MatchingLabels{hexactfv1.LabelPartOf: c.Name})
		Expect(pods.Items).NotTo(BeEmpty())
		pod = &pods.Items[0]
		Expect(*pod.Spec.TerminationGracePeriodSeconds).To(BeNumerically("==", 2))
		return c, pod, expect.HeldPod(ctx, pod)
	}

	DescribeTable("keeps its network policies until its last pod is gone", func(ctx context.Context, cascade metav1.DeletionPropagation) {
		c, pod, release := begin(ctx)
		part := client.MatchingLabels{hexactfv1.LabelPartOf: c.Name}
		policies := apiserver.Names(ctx, &networkingv1.NetworkPolicyList{}, client.InNamespace(c.Namespace), part)
		Expect(policies).To(HaveLen(2))

		Expect(k8s.Delete(ctx, c, client.PropagationPolicy(cascade))).To(Succeed())
		expect.Confined(ctx, pod, part)
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(c), c)).To(Succeed())
		Expect(c.Finalizers).To(ContainElement(hexactfv1.Finalizer))
		Expect(c.Status.CurrentStatus.State).To(Equal(hexactfv1.StateTerminating))

		By("deleting them")
		Expect(k8s.DeleteAllOf(ctx, &networkingv1.NetworkPolicy{}, client.InNamespace(c.Namespace), part)).To(Succeed())
		Eventually(func() []string {
			return apiserver.Names(ctx, &networkingv1.NetworkPolicyList{}, client.InNamespace(c.Namespace), part)
		}).Should(Equal(policies))

		release()
		expect.Gone(ctx, c)
		Eventually(func() []string {
			return apiserver.Names(ctx, &networkingv1.NetworkPolicyList{}, client.InNamespace(c.Namespace), part)
		}).Should(BeEmpty())
	}, expect.Cascades())

	It("with its namespace keeps them too", func(ctx context.Context) {
		c, pod, release := begin(ctx)
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.Namespace}}
		Expect(k8s.Delete(ctx, ns)).To(Succeed())
		expect.Confined(ctx, pod, client.MatchingLabels{hexactfv1.LabelPartOf: c.Name})
		release()
		expect.Gone(ctx, c)
		expect.Gone(ctx, ns)
	})
})

var _ = Describe("A network policy that has an owner, as an earlier version wrote it,", func() {
	It("loses the owner", func(ctx context.Context) {
		ns := hexactftest.Define(ctx, "web", hexactftest.OneComponent)
		c := running(ctx, ns, "web")
		policy := &apiserver.List[networkingv1.NetworkPolicyList](ctx, client.InNamespace(ns), client.MatchingLabels{hexactfv1.LabelPartOf: c.Name}).Items[0]
		Expect(policy.OwnerReferences).To(BeEmpty())
		apiserver.Change(ctx, policy, func() {
			policy.OwnerReferences = []metav1.OwnerReference{{APIVersion: hexactfv1.GroupVersion.String(), Kind: "Challenge", Name: c.Name, UID: c.UID}}
		})
		Eventually(func(g Gomega) {
			g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(policy), policy)).To(Succeed())
			g.Expect(policy.OwnerReferences).To(BeEmpty())
		}).Should(Succeed())
	})
})

var _ = Describe("Two challenges whose labels join to the same text", func() {
	It("have objects of their own", func(ctx context.Context) {
		ns := hexactftest.Define(ctx, "web", hexactftest.OneComponent)
		as := func(id, user string) func(*hexactfv1.Challenge) {
			return func(c *hexactfv1.Challenge) {
				c.Labels = map[string]string{hexactfv1.LabelChallengeID: id, hexactfv1.LabelUser: user}
			}
		}
		one, other := hexactftest.Challenge(ctx, ns, "web", as("7-web", "c")), hexactftest.Challenge(ctx, ns, "web", as("7", "web-c"))
		hexactftest.Reaches(ctx, one, hexactfv1.StateRunning)
		hexactftest.Reaches(ctx, other, hexactfv1.StateRunning)
		Expect(apiserver.Names(ctx, &appsv1.DeploymentList{}, client.InNamespace(ns))).To(And(HaveLen(2), ContainElement("chall-7-web-web-c-deploy")))
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
