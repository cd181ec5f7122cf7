package apply

import (
	"context"
	"net/http"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
)

var _ = Describe("NETWORK_POLICY", func() {
	It("decides which policy an instance has; when it changes, the new one comes before the old one is deleted", func(ctx context.Context) {
		i := bergtest.StartRunning(ctx, "policy", bergtest.EveryKind)
		in := client.InNamespace(i.Status.Namespace)
		pods := uids(ctx, &corev1.PodList{}, in)
		foreign := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{
			Namespace: i.Status.Namespace, Name: "foreign", Labels: map[string]string{bergv1.LabelManagedBy: bergv1.ManagedBy},
		}}
		Expect(k8s.Create(ctx, foreign)).To(Succeed())

		has := func(kubernetes, cilium bool) {
			GinkgoHelper()
			Eventually(func(g Gomega) {
				g.Expect(apiserver.Names(ctx, &networkingv1.NetworkPolicyList{}, in)).To(ConsistOf(policyNames("foreign", kubernetes)))
				g.Expect(apiserver.Names(ctx, &ciliumv2.CiliumNetworkPolicyList{}, in)).To(ConsistOf(policyNames("", cilium)))
			}).Should(Succeed())
			expect.Reaches(ctx, i, bergv1.PhaseRunning)
		}
		has(false, true)

		By("from cilium to kubernetes")
		created := occurrence(ctx, &networkingv1.NetworkPolicyList{}, i.Status.Namespace, watch.Added)
		deleted := occurrence(ctx, &ciliumv2.CiliumNetworkPolicyList{}, i.Status.Namespace, watch.Deleted)
		inprocess.Restart(map[string]string{"NETWORK_POLICY": "kubernetes"}, nil)
		has(true, false)
		order, err := resourceversion.CompareResourceVersion(created(), deleted())
		Expect(err).NotTo(HaveOccurred())
		Expect(order).To(BeNumerically("<", 0), "the old policy went before the new one was there")

		By("deleting and changing it by hand")
		policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: i.Status.Namespace, Name: "challenge-network-policy"}}
		Expect(k8s.Delete(ctx, policy)).To(Succeed())
		has(true, false)
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(policy), policy)).To(Succeed())
		want := policy.DeepCopy()
		policy.Spec.Egress = append(policy.Spec.Egress, networkingv1.NetworkPolicyEgressRule{})
		Expect(k8s.Update(ctx, policy)).To(Succeed())
		expect.Becomes(ctx, policy, func(g Gomega) {
			g.Expect(policy.Spec).To(Equal(want.Spec))
		})

		By("to both")
		inprocess.Restart(map[string]string{"NETWORK_POLICY": "both"}, nil)
		has(true, true)
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(policy), policy)).To(Succeed())
		Expect(policy.UID).To(Equal(want.UID), "the policy was made again")

		By("back to cilium")
		inprocess.Restart(map[string]string{"NETWORK_POLICY": "cilium"}, nil)
		has(false, true)

		Expect(uids(ctx, &corev1.PodList{}, in)).To(Equal(pods), "pods were restarted")
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(foreign), foreign)).To(Succeed())
	})

	It("follows the cluster by default, which may lose Cilium and get it back, and always leaves a policy", func(ctx context.Context) {
		i := bergtest.StartRunning(ctx, "auto", bergtest.OneContainer)
		ns := i.Namespace
		isolatedBy := func(i *bergv1.ChallengeInstance, kind string) {
			GinkgoHelper()
			expect.Becomes(ctx, i, func(g Gomega) {
				created := meta.FindStatusCondition(i.Status.Conditions, bergv1.ConditionNetworkPolicyCreated)
				g.Expect(created).To(HaveField("Message", "In place: "+kind))
				g.Expect(i.Status.Phase).To(Equal(bergv1.PhaseRunning))
			})
		}
		of := func(i *bergv1.ChallengeInstance) client.ListOption { return client.InNamespace(i.Status.Namespace) }
		isolatedBy(i, "CiliumNetworkPolicy")
		Expect(apiserver.Names(ctx, &networkingv1.NetworkPolicyList{}, of(i))).To(BeEmpty())
		pods := uids(ctx, &corev1.PodList{}, of(i))

		By("taking away the agents, as an uninstallation that leaves the API behind")
		agents := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "cilium"}}
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(agents), agents)).To(Succeed())
		runOn := func(ctx context.Context, nodes map[string]string) {
			apiserver.Change(ctx, agents, func() { agents.Spec.Template.Spec.NodeSelector = nodes })
		}
		everywhere := agents.Spec.Template.Spec.NodeSelector
		DeferCleanup(runOn, everywhere)
		runOn(ctx, map[string]string{"example.com/nowhere": ""})
		isolatedBy(i, "NetworkPolicy and CiliumNetworkPolicy")
		Expect(apiserver.Names(ctx, &networkingv1.NetworkPolicyList{}, of(i))).To(ConsistOf("challenge-network-policy"))
		Expect(apiserver.Names(ctx, &ciliumv2.CiliumNetworkPolicyList{}, of(i))).To(ConsistOf("challenge-network-policy"))
		without := bergtest.Running(ctx, ns, "auto")
		isolatedBy(without, "NetworkPolicy and CiliumNetworkPolicy")

		By("an agent of another namespace, which a tenant may call so")
		imposter := agents.DeepCopy()
		imposter.ObjectMeta = metav1.ObjectMeta{Namespace: ns, Name: agents.Name}
		imposter.Spec.Template.Spec.NodeSelector = nil
		Expect(k8s.Create(ctx, imposter)).To(Succeed())
		expect.Becomes(ctx, imposter, func(g Gomega) {
			g.Expect(imposter.Status.NumberReady).To(BeNumerically(">", 0))
		})
		fooled := bergtest.Running(ctx, ns, "auto")
		isolatedBy(fooled, "NetworkPolicy and CiliumNetworkPolicy")

		By("bringing them back")
		runOn(ctx, everywhere)
		for _, i := range []*bergv1.ChallengeInstance{i, without, fooled} {
			isolatedBy(i, "CiliumNetworkPolicy")
			Eventually(apiserver.Names).WithArguments(ctx, &networkingv1.NetworkPolicyList{}, of(i)).Should(BeEmpty())
		}

		By("removing Cilium's API")
		install := uninstall(ctx, ciliumPolicies)
		isolatedBy(i, "NetworkPolicy")
		Expect(apiserver.Names(ctx, &networkingv1.NetworkPolicyList{}, of(i))).To(ConsistOf("challenge-network-policy"))
		between := bergtest.Running(ctx, ns, "auto")
		isolatedBy(between, "NetworkPolicy")

		By("installing it again")
		deleted := occurrence(ctx, &networkingv1.NetworkPolicyList{}, i.Status.Namespace, watch.Deleted)
		install(ctx)
		for _, i := range []*bergv1.ChallengeInstance{i, between} {
			isolatedBy(i, "CiliumNetworkPolicy")
			Expect(apiserver.Names(ctx, &networkingv1.NetworkPolicyList{}, of(i))).To(BeEmpty())
		}
		policy := apiserver.Get[ciliumv2.CiliumNetworkPolicy](ctx, client.ObjectKey{Namespace: i.Status.Namespace, Name: "challenge-network-policy"})
		order, err := resourceversion.CompareResourceVersion(policy.ResourceVersion, deleted())
		Expect(err).NotTo(HaveOccurred())
		Expect(order).To(BeNumerically("<", 0), "the old policy went before the new one was there")
		Expect(uids(ctx, &corev1.PodList{}, of(i))).To(Equal(pods), "pods were restarted")
	})

	It("stops the pods while its policy cannot be put in place, and starts them again", func(ctx context.Context) {
		i := bergtest.StartRunning(ctx, "unconfined", bergtest.OneContainer)
		in := client.InNamespace(i.Status.Namespace)
		lift := bergtest.Refuse(ctx, i.Spec.OwnerID, "cilium.io", "ciliumnetworkpolicies", "CREATE")
		policy := &ciliumv2.CiliumNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: i.Status.Namespace, Name: "challenge-network-policy"}}
		Expect(k8s.Delete(ctx, policy)).To(Succeed())
		expect.Shows(ctx, i, bergv1.ConditionNetworkPolicyCreated, metav1.ConditionFalse, bergv1.ReasonRefused)
		expect.Says(ctx, i, "no container of the instance runs")
		expect.Says(ctx, i, apiserver.Refusal)
		Eventually(apiserver.Names).WithArguments(ctx, &corev1.PodList{}, in).Should(BeEmpty())
		expect.Shows(ctx, i, bergv1.ConditionReady, metav1.ConditionFalse, bergv1.ReasonRefused)

		lift()
		expect.Shows(ctx, i, bergv1.ConditionNetworkPolicyCreated, metav1.ConditionTrue, bergv1.ReasonCreated)
		expect.Shows(ctx, i, bergv1.ConditionHealthy, metav1.ConditionTrue, bergv1.ReasonReady)
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(policy), policy)).To(Succeed())
		Expect(apiserver.Names(ctx, &corev1.PodList{}, in)).To(HaveLen(1))
	})

	It("watches no kind of policy that is not wanted", func(ctx context.Context) {
		ns := bergtest.Publish(ctx, "unwatched", bergtest.OneContainer)
		for policy, unwanted := range map[string]string{"kubernetes": "/ciliumnetworkpolicies", "cilium": "/networkpolicies"} {
			seen := &requests{}
			// Other families have watches of their own.
			inprocess.Restart(map[string]string{"NETWORK_POLICY": policy, "ENABLED_APIS": bergv1.GroupVersion.Group}, seen.wrap)
			i := bergtest.Running(ctx, ns, "unwatched")
			bergtest.Delete(ctx, i)
			// One look at what a former setting may have left.
			Expect(seen.to(unwanted)).To(HaveLen(1), policy)
			Expect(seen.to(unwanted)[0]).NotTo(ContainSubstring("watch="), policy)
		}
	})
})

// occurrence watches a kind of policy, and returns at which resource version
// something happened to that of an instance.
func occurrence(ctx context.Context, list client.ObjectList, namespace string, what watch.EventType) func() string {
	GinkgoHelper()
	w, err := k8s.Watch(ctx, list, client.InNamespace(namespace))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(w.Stop)
	return func() string {
		GinkgoHelper()
		for {
			var e watch.Event
			Eventually(w.ResultChan()).Should(Receive(&e))
			if o := e.Object.(client.Object); e.Type == what && o.GetName() == "challenge-network-policy" {
				return o.GetResourceVersion()
			}
		}
	}
}

func policyNames(foreign string, ours bool) []string {
	out := []string{}
	if foreign != "" {
		out = append(out, foreign)
	}
	if ours {
		out = append(out, "challenge-network-policy")
	}
	return out
}

// uids returns the UIDs of the objects of a list, by name.
func uids(ctx context.Context, list client.ObjectList, opts ...client.ListOption) map[string]string {
	GinkgoHelper()
	out := map[string]string{}
	Expect(k8s.List(ctx, list, opts...)).To(Succeed())
	Expect(meta.EachListItem(list, func(o runtime.Object) error {
		out[o.(client.Object).GetName()] = string(o.(client.Object).GetUID())
		return nil
	})).To(Succeed())
	return out
}

// requests records what an operator asks the API server.
type requests struct {
	mu   sync.Mutex
	seen []string
	next http.RoundTripper
}

func (r *requests) wrap(next http.RoundTripper) http.RoundTripper {
	r.next = next
	return r
}

func (r *requests) RoundTrip(request *http.Request) (*http.Response, error) {
	r.mu.Lock()
	r.seen = append(r.seen, request.Method+" "+request.URL.String())
	r.mu.Unlock()
	return r.next.RoundTrip(request)
}

// to returns the requests whose address contains a part.
func (r *requests) to(part string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, s := range r.seen {
		if strings.Contains(s, part) {
			out = append(out, s)
		}
	}
	return out
}
