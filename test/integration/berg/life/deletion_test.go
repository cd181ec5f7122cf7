package life

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/transport"
)

var _ = Describe("Deleting an instance", func() {
	DescribeTable("leaves nothing behind, in every state",
		func(ctx context.Context, spec string, state func(context.Context, *bergv1.ChallengeInstance)) {
			ns := bergtest.Namespace(ctx)
			if spec != "" {
				bergtest.Challenge(ctx, ns, "state", spec)
			}
			i := bergtest.Instance(ctx, ns, "state")
			state(ctx, i)
			all := bergtest.Versions(ctx, i)
			bergtest.Delete(ctx, i)
			last := bergtest.LastOf(all, i.UID)
			Expect(last.Status.Phase).To(Equal(bergv1.PhaseTerminated))
			Expect(last.Status.TerminatedAt).NotTo(BeNil())
		},
		Entry("running", bergtest.OneContainer, inPhase(bergv1.PhaseRunning)),
		Entry("without pods", bergtest.NeverReady, withPodsReady(metav1.ConditionFalse, "Unschedulable")),
		Entry("with an image that cannot be pulled", bergtest.Misbehaving("image-pull"), withPodsReady(metav1.ConditionFalse, "ImagePullBackOff")),
		Entry("in a crash loop", bergtest.Misbehaving("crash"), withPodsReady(metav1.ConditionFalse, "CrashLoopBackOff")),
		Entry("failed, nothing was made", "", inPhase(bergv1.PhaseFailed)),
		Entry("after its Challenge", bergtest.OneContainer, func(ctx context.Context, i *bergv1.ChallengeInstance) {
			expect.Reaches(ctx, i, bergv1.PhaseRunning)
			Expect(k8s.Delete(ctx, &bergv1.Challenge{ObjectMeta: metav1.ObjectMeta{Namespace: i.Namespace, Name: "state"}})).To(Succeed())
			expect.Shows(ctx, i, bergv1.ConditionChallengeFound, metav1.ConditionFalse, bergv1.ReasonChallengeMissing)
		}),
		Entry("while its namespace is being deleted by hand", bergtest.OneContainer, func(ctx context.Context, i *bergv1.ChallengeInstance) {
			expect.Reaches(ctx, i, bergv1.PhaseRunning)
			release := bergtest.Hold(ctx, i.Status.Namespace)
			Expect(k8s.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: i.Status.Namespace}})).To(Succeed())
			expect.Shows(ctx, i, bergv1.ConditionNamespaceCreated, metav1.ConditionFalse, bergv1.ReasonWaiting)
			release()
		}),
	)

	It("of which the API server refuses to make a part leaves nothing behind", func(ctx context.Context) {
		ns := bergtest.Publish(ctx, "half", bergtest.EveryKind)
		id := uuid.NewString()
		bergtest.Refuse(ctx, id, "apps", "deployments", "CREATE")
		i := bergtest.Instance(ctx, ns, "half", func(i *bergv1.ChallengeInstance) { i.Spec.OwnerID = id })
		expect.Shows(ctx, i, bergv1.ConditionDeploymentsCreated, metav1.ConditionFalse, bergv1.ReasonRefused)
		Expect(i.Status.Phase).To(Equal(bergv1.PhaseCreating))
		bergtest.Delete(ctx, i)
	})

	It("that a killed operator has half made leaves nothing behind", func(ctx context.Context) {
		ns := bergtest.Publish(ctx, "killed", bergtest.EveryKind)
		// From some write on nothing reaches the API server any more, as if the process
		// had been killed there.
		for _, at := range []int64{1, 2, 3, 5, 8} {
			resume := inprocess.Pause()
			var writes atomic.Int64
			i := bergtest.Instance(ctx, ns, "killed")
			stopKilled := inprocess.Run(nil, transport.Through(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
				about := strings.Contains(r.URL.Path, i.Spec.OwnerID) || strings.Contains(r.URL.Path, i.Name) || strings.HasSuffix(r.URL.Path, "/namespaces")
				if r.Method != http.MethodGet && about && writes.Add(1) > at {
					return nil, errors.New("killed")
				}
				return next.RoundTrip(r)
			}))
			DeferCleanup(func() { stopKilled() })
			Eventually(writes.Load).Should(BeNumerically(">", at))
			stopKilled()
			Expect(k8s.Delete(ctx, i)).To(Succeed())
			resume()
			bergtest.Gone(ctx, i)
		}
	})

	It("that no operator has seen yet, or sees only afterwards, is done immediately", func(ctx context.Context) {
		running := bergtest.StartRunning(ctx, "unseen", bergtest.OneContainer)
		ns := running.Namespace
		resume := inprocess.Pause()
		unseen := bergtest.Instance(ctx, ns, "unseen")
		bergtest.Delete(ctx, unseen)
		Expect(k8s.Delete(ctx, running)).To(Succeed())
		resume()
		bergtest.Gone(ctx, running)
	})

	It("removes the finalizer of the operator alone, however many others an instance has", func(ctx context.Context) {
		others := apiserver.ManyFinalizers()
		i := bergtest.StartRunning(ctx, "crowded", bergtest.OneContainer, func(i *bergv1.ChallengeInstance) { i.Finalizers = others })
		DeferCleanup(func(ctx context.Context) { apiserver.Change(ctx, i, func() { i.Finalizers = nil }) })
		Expect(i.Finalizers).To(ConsistOf(append([]string{bergv1.Finalizer}, others...)))
		Expect(k8s.Delete(ctx, i)).To(Succeed())
		expect.Becomes(ctx, i, func(g Gomega) { g.Expect(i.Finalizers).To(Equal(others)) })
	})

	It("continues when what holds its namespace releases it, and says until then what that is", func(ctx context.Context) {
		ns := bergtest.Publish(ctx, "held", bergtest.OneContainer)
		inside, itself, refused := bergtest.Instance(ctx, ns, "held"), bergtest.Instance(ctx, ns, "held"), bergtest.Instance(ctx, ns, "held")
		bergtest.AllRun(ctx, inside, itself, refused)

		By("a finalizer of an object in it")
		release := bergtest.Hold(ctx, inside.Status.Namespace)
		Expect(k8s.Delete(ctx, inside)).To(Succeed())
		expect.Shows(ctx, inside, bergv1.ConditionNamespaceDeleted, metav1.ConditionFalse, bergv1.ReasonDeletionBlocked)
		Expect(inside.Status.Phase).To(Equal(bergv1.PhaseTerminating))
		expect.Says(ctx, inside, "example.com/hold")
		release()
		bergtest.Gone(ctx, inside)

		By("a finalizer of the namespace itself")
		namespace := apiserver.Get[corev1.Namespace](ctx, client.ObjectKey{Name: itself.Status.Namespace})
		finalizers := func(finalizers ...string) {
			before := namespace.DeepCopy()
			namespace.Finalizers = finalizers
			Expect(client.IgnoreNotFound(k8s.Patch(context.Background(), namespace, client.MergeFrom(before)))).To(Succeed())
		}
		finalizers("example.com/hold")
		DeferCleanup(func() { finalizers() })
		Expect(k8s.Delete(ctx, itself)).To(Succeed())
		expect.Shows(ctx, itself, bergv1.ConditionNamespaceDeleted, metav1.ConditionFalse, bergv1.ReasonDeletionBlocked)
		expect.Says(ctx, itself, "example.com/hold")
		finalizers()
		bergtest.Gone(ctx, itself)

		By("a policy that refuses the deletion")
		lift := bergtest.Refuse(ctx, refused.Spec.OwnerID, "", "namespaces", "DELETE")
		Expect(k8s.Delete(ctx, refused)).To(Succeed())
		expect.Shows(ctx, refused, bergv1.ConditionNamespaceDeleted, metav1.ConditionFalse, bergv1.ReasonDeletionBlocked)
		expect.Says(ctx, refused, apiserver.Refusal)
		in := client.InNamespace(refused.Status.Namespace)
		Expect(k8s.DeleteAllOf(ctx, &ciliumv2.CiliumNetworkPolicy{}, in)).To(Succeed())
		Eventually(func() []string { return apiserver.Names(ctx, &ciliumv2.CiliumNetworkPolicyList{}, in) }).ShouldNot(BeEmpty())
		lift()
		bergtest.Gone(ctx, refused)
	})

	It("sweeps up custom resources that outlive their namespace", func(ctx context.Context) {
		i := bergtest.StartRunning(ctx, "left", bergtest.OneContainer)
		resume := inprocess.Pause()
		vanish(ctx, i)
		routes, policies := &gatewayv1.HTTPRouteList{}, &ciliumv2.CiliumNetworkPolicyList{}
		Expect(k8s.List(ctx, routes, client.InNamespace(i.Status.Namespace))).To(Succeed())
		Expect(routes.Items).NotTo(BeEmpty())

		Expect(k8s.Delete(ctx, i)).To(Succeed())
		resume()
		bergtest.Gone(ctx, i)
		Expect(k8s.List(ctx, routes, client.InNamespace(i.Status.Namespace))).To(Succeed())
		Expect(routes.Items).To(BeEmpty())
		Expect(k8s.List(ctx, policies, client.InNamespace(i.Status.Namespace))).To(Succeed())
		Expect(policies.Items).To(BeEmpty())
	})

	DescribeTable("keeps the network policies until the last process has ended, also of an instance that is deleted", func(ctx context.Context, cascade metav1.DeletionPropagation) {
		i := bergtest.StartRunning(ctx, "cascade", bergtest.OneContainer)
		pods := apiserver.List[corev1.PodList](ctx, client.InNamespace(i.Status.Namespace))
		Expect(pods.Items).To(HaveLen(1))
		policies := &ciliumv2.CiliumNetworkPolicyList{}
		release := expect.HeldPod(ctx, &pods.Items[0])
		Expect(k8s.Delete(ctx, i, client.PropagationPolicy(cascade))).To(Succeed())
		Consistently(func(g Gomega) {
			g.Expect(k8s.List(ctx, policies, client.InNamespace(i.Status.Namespace))).To(Succeed())
			g.Expect(policies.Items).NotTo(BeEmpty())
			for _, p := range policies.Items {
				g.Expect(p.DeletionTimestamp).To(BeNil())
			}
		}).WithTimeout(8 * time.Second).Should(Succeed())
		release()
		bergtest.Gone(ctx, i)
	}, expect.Cascades())

	It("keeps the network policies until the last process has ended, and where a node hangs as long as nothing else confines it", func(ctx context.Context) {
		i := bergtest.StartRunning(ctx, "confined", bergtest.Misbehaving("hung"))
		Expect(k8s.Delete(ctx, i)).To(Succeed())
		var pods corev1.PodList
		Eventually(func(g Gomega) {
			g.Expect(k8s.List(ctx, &pods, client.InNamespace(i.Status.Namespace))).To(Succeed())
			g.Expect(pods.Items).To(HaveLen(1))
			g.Expect(pods.Items[0].DeletionTimestamp).NotTo(BeNil())
		}).Should(Succeed())
		Expect(pods.Items[0].Spec.TerminationGracePeriodSeconds).To(HaveValue(BeZero()))
		// Without a grace period it would have left the API before its processes end.
		Expect(pods.Items[0].DeletionGracePeriodSeconds).To(HaveValue(BeEquivalentTo(1)))
		// The namespace's controller begins after five seconds.
		confined := func(g Gomega) {
			policies := &ciliumv2.CiliumNetworkPolicyList{}
			g.Expect(k8s.List(ctx, policies, client.InNamespace(i.Status.Namespace))).To(Succeed())
			g.Expect(policies.Items).NotTo(BeEmpty())
			for _, p := range policies.Items {
				g.Expect(p.DeletionTimestamp).To(BeNil())
			}
			g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(&pods.Items[0]), &corev1.Pod{})).To(Succeed())
		}
		Consistently(confined).WithTimeout(8 * time.Second).Should(Succeed())
		expect.Says(ctx, i, "The node of pods "+pods.Items[0].Name+" has not ended them yet")

		By("an hour later, with policies that end with the namespace")
		later := clocktesting.NewFakePassiveClock(time.Now().Add(time.Hour))
		stop := inprocess.Instead(later, inprocess.With(map[string]string{"NETWORK_POLICY": "both"}), nil)
		Consistently(confined).WithTimeout(5 * time.Second).Should(Succeed())
		stop()
		By("with one for the whole cluster, which Cilium has")
		inprocess.Instead(later, inprocess.With(map[string]string{"NETWORK_POLICY": "cilium"}), nil)
		bergtest.Gone(ctx, i)
	})

	It("is asked for by UID, so that what has taken its name since is safe", func(ctx context.Context) {
		i := bergtest.StartRunning(ctx, "precise", bergtest.OneContainer)
		var namespace corev1.Namespace
		Expect(k8s.Get(ctx, client.ObjectKey{Name: i.Status.Namespace}, &namespace)).To(Succeed())
		var lock sync.Mutex
		asked := map[string]string{}
		inprocess.Instead(clocktesting.NewFakePassiveClock(time.Now().Add(3*time.Hour)), nil, transport.Showing(func(r *http.Request) {
			if r.Method == http.MethodDelete {
				lock.Lock()
				defer lock.Unlock()
				// JSON or protobuf: the UID stands in both as it is.
				asked[r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]] = transport.Body(r)
			}
		}))
		bergtest.Gone(ctx, i)
		lock.Lock()
		defer lock.Unlock()
		Expect(asked).To(And(HaveKeyWithValue(i.Name, ContainSubstring(string(i.UID))), HaveKeyWithValue(namespace.Name, ContainSubstring(string(namespace.UID)))))
	})

	It("waits for what is being built, so that nothing is built after the deletion", func(ctx context.Context) {
		ns := bergtest.Publish(ctx, "under-way", bergtest.OneContainer)
		id := uuid.NewString()
		building, goOn := make(chan struct{}), make(chan struct{})
		proceed := sync.OnceFunc(func() { close(goOn) })
		reached := sync.OnceFunc(func() { close(building) })
		inprocess.Instead(clock.RealClock{}, nil, transport.Showing(func(r *http.Request) {
			if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, id+"/deployments") {
				reached()
				<-goOn
			}
		}))
		DeferCleanup(proceed)
		i := bergtest.Instance(ctx, ns, "under-way", func(i *bergv1.ChallengeInstance) { i.Spec.OwnerID = id })
		Eventually(building).Should(BeClosed())
		Expect(k8s.Delete(ctx, i)).To(Succeed())
		namespace := &corev1.Namespace{}
		Consistently(func(g Gomega) {
			g.Expect(k8s.Get(ctx, client.ObjectKey{Name: manifests.NamespaceName(id)}, namespace)).To(Succeed())
			g.Expect(namespace.DeletionTimestamp).To(BeNil())
		}).WithTimeout(2 * time.Second).Should(Succeed())
		proceed()
		bergtest.Gone(ctx, i)
	})

	It("takes the finalizer off once, however late the cache shows that it is gone", func(ctx context.Context) {
		i := bergtest.StartRunning(ctx, "once", bergtest.OneContainer)
		var patches atomic.Int64
		name := i.Name // i is read again while the operator runs
		news := make(chan struct{})
		DeferCleanup(func() { close(news) })
		inprocess.Instead(clock.RealClock{}, nil, transport.Through(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/challengeinstances/"+name) {
				patches.Add(1)
			}
			answer, err := next.RoundTrip(r)
			if err == nil && r.URL.Query().Get("watch") != "" && strings.HasSuffix(r.URL.Path, "/challengeinstances") {
				answer.Body = heldBack(answer.Body, news, `"type":"DELETED"`, name)
			}
			return answer, err
		}))
		bergtest.Delete(ctx, i)
		// The end of another namespace of that name wakes the instance, which the operator's cache still has.
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: i.Status.Namespace}}
		Expect(k8s.Create(ctx, namespace)).To(Succeed())
		Expect(k8s.Delete(ctx, namespace)).To(Succeed())
		Eventually(bergtest.NamespaceExists).WithArguments(ctx, i).Should(BeFalse())
		Consistently(patches.Load).WithTimeout(2 * time.Second).Should(BeEquivalentTo(1))
	})
})

// heldBack is a watch's body whose events wait for a channel to be closed if all words
// are in them.
func heldBack(body io.ReadCloser, until <-chan struct{}, words ...string) io.ReadCloser {
	out, in := io.Pipe()
	go func() {
		events := bufio.NewReader(body)
		for {
			event, err := events.ReadString('\n')
			if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(event, word) }) {
				<-until
			}
			if _, closed := io.WriteString(in, event); closed != nil || err != nil {
				in.CloseWithError(errors.Join(err, closed))
				return
			}
		}
	}()
	return readCloser{Reader: out, close: func() error { return errors.Join(out.Close(), body.Close()) }}
}

type readCloser struct {
	io.Reader
	close func() error
}

func (r readCloser) Close() error { return r.close() }

var _ = Describe("A namespace that is deleted by hand", func() {
	It("is made again, with all that was in it and the same addresses", func(ctx context.Context) {
		i := bergtest.StartRunning(ctx, "rebuilt", bergtest.OneContainer)
		before := i.DeepCopy()
		old := &corev1.Namespace{}
		key := client.ObjectKey{Name: manifests.NamespaceName(i.Spec.OwnerID)}
		Expect(k8s.Get(ctx, key, old)).To(Succeed())
		Expect(k8s.Delete(ctx, old)).To(Succeed())
		expect.Shows(ctx, i, bergv1.ConditionNamespaceCreated, metav1.ConditionFalse, bergv1.ReasonWaiting)
		Expect(i.Status.Phase).To(Equal(bergv1.PhaseCreating))
		expect.Reaches(ctx, i, bergv1.PhaseRunning)
		expect.Shows(ctx, i, bergv1.ConditionHealthy, metav1.ConditionTrue, bergv1.ReasonReady)
		now := apiserver.Get[corev1.Namespace](ctx, key)
		Expect(now.UID).NotTo(Equal(old.UID))
		Expect(i.Status.InstanceID).To(Equal(before.Status.InstanceID))
		Expect(i.Status.Services).To(Equal(before.Status.Services))
		Expect(i.Status.ExpiresAt).To(Equal(before.Status.ExpiresAt))
	})
})

func inPhase(phase bergv1.Phase) func(context.Context, *bergv1.ChallengeInstance) {
	return func(ctx context.Context, i *bergv1.ChallengeInstance) { expect.Reaches(ctx, i, phase) }
}

func withPodsReady(status metav1.ConditionStatus, reason string) func(context.Context, *bergv1.ChallengeInstance) {
	return func(ctx context.Context, i *bergv1.ChallengeInstance) {
		expect.Shows(ctx, i, bergv1.ConditionPodsReady, status, reason)
		Expect(i.Status.Phase).To(Equal(bergv1.PhaseStarting))
	}
}

// vanish takes the namespace of an instance away and leaves custom resources behind: as the
// controller of namespaces does when the API server knows of none.
func vanish(ctx context.Context, i *bergv1.ChallengeInstance) {
	GinkgoHelper()
	for _, kind := range []client.Object{&appsv1.Deployment{}, &corev1.Service{}, &corev1.ConfigMap{}, &policyv1.PodDisruptionBudget{}} {
		Expect(k8s.DeleteAllOf(ctx, kind, client.InNamespace(i.Status.Namespace))).To(Succeed())
	}
	Eventually(func(g Gomega) {
		var pods corev1.PodList
		g.Expect(k8s.List(ctx, &pods, client.InNamespace(i.Status.Namespace))).To(Succeed())
		g.Expect(pods.Items).To(BeEmpty())
	}).Should(Succeed())
	namespace := apiserver.Get[corev1.Namespace](ctx, client.ObjectKey{Name: i.Status.Namespace})
	namespace.Spec.Finalizers = nil
	Expect(k8s.SubResource("finalize").Update(ctx, namespace)).To(Succeed())
	Eventually(func(g Gomega) { // the first only marks it
		g.Expect(client.IgnoreNotFound(k8s.Delete(ctx, namespace))).To(Succeed())
		g.Expect(bergtest.NamespaceExists(ctx, i)).To(BeFalse())
	}).Should(Succeed())
}
