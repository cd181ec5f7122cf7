package life

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/installed"
)

var _ = Describe("The life of an instance", func() {
	It("builds every object, runs, and reports its endpoints", Label("versions"), func(ctx context.Context) {
		i := bergtest.StartRunning(ctx, "every-kind", bergtest.EveryKind)
		ns := i.Namespace

		By("the status")
		s := i.Status
		Expect(s.InstanceID).To(HaveLen(36))
		Expect(s.InstanceID[14]).To(Equal(byte('7')), "a UUID of version 7")
		Expect(s.Namespace).To(Equal("challenge-" + i.Spec.OwnerID))
		Expect(s.ReadyAt).NotTo(BeNil())
		Expect(s.ExpiresAt.Sub(s.StartedAt.Time)).To(Equal(2 * time.Hour))
		Expect(s.ObservedGeneration).To(Equal(i.Generation))
		for _, conditionType := range []string{
			bergv1.ConditionChallengeFound, bergv1.ConditionFlagValidation, bergv1.ConditionNamespaceCreated,
			bergv1.ConditionNetworkPolicyCreated, bergv1.ConditionServicesCreated, bergv1.ConditionRoutesCreated,
			bergv1.ConditionDeploymentsCreated, bergv1.ConditionPodsReady, bergv1.ConditionHealthy, bergv1.ConditionUpToDate,
			bergv1.ConditionReady,
		} {
			Expect(meta.IsStatusConditionTrue(s.Conditions, conditionType)).To(BeTrue(), "%s: %s", conditionType, expect.Conditions(i))
		}

		By("the namespace")
		in := client.InNamespace(s.Namespace)
		var namespace corev1.Namespace
		Expect(k8s.Get(ctx, client.ObjectKey{Name: s.Namespace}, &namespace)).To(Succeed())
		Expect(namespace.Labels).To(And(
			HaveKeyWithValue(bergv1.LabelManagedBy, "berg"), HaveKeyWithValue(bergv1.LabelComponent, "challenge"),
			HaveKeyWithValue(bergv1.LabelChallenge, "every-kind"), HaveKeyWithValue(bergv1.LabelChallengeNamespace, ns),
			HaveKeyWithValue(bergv1.LabelOwnerID, i.Spec.OwnerID), HaveKeyWithValue(bergv1.LabelInstanceID, s.InstanceID),
			HaveKeyWithValue("pod-security.kubernetes.io/enforce", "baseline")))

		By("the objects in it")
		Expect(apiserver.Names(ctx, &ciliumv2.CiliumNetworkPolicyList{}, in)).To(ConsistOf("challenge-network-policy"))
		Expect(apiserver.Names(ctx, &corev1.ServiceList{}, in)).To(ConsistOf("web", "pwn", "pwn-node-port", "db"))
		Expect(apiserver.Names(ctx, &gatewayv1.HTTPRouteList{}, in)).To(ConsistOf("web-8080"))
		Expect(apiserver.Names(ctx, &gatewayv1.TLSRouteList{}, in)).To(ConsistOf("web-7000"))
		Expect(apiserver.Names(ctx, &corev1.ConfigMapList{}, in)).To(ContainElements("flag-content", "flag-executable"))
		Expect(apiserver.Names(ctx, &policyv1.PodDisruptionBudgetList{}, in)).To(ConsistOf("web-pdb", "pwn-pdb", "db-pdb"))
		Expect(apiserver.Names(ctx, &appsv1.DeploymentList{}, in)).To(ConsistOf("web", "pwn", "db"))

		By("the flag in all three forms")
		var content, program corev1.ConfigMap
		Expect(k8s.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: "flag-content"}, &content)).To(Succeed())
		Expect(string(content.BinaryData["content"])).To(Equal("flag{integration}\n"))
		Expect(k8s.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: "flag-executable"}, &program)).To(Succeed())
		_, err := elf.NewFile(bytes.NewReader(program.BinaryData["executable"]))
		Expect(err).NotTo(HaveOccurred())
		Expect(bergtest.VariablesOf(ctx, s.Namespace, "db")).To(HaveKeyWithValue("FLAG", "flag{integration}"))

		By("the endpoints, in the status and in every container")
		byName := map[string]bergv1.ServiceEndpoint{}
		for _, e := range s.Services {
			byName[e.Name] = e
		}
		Expect(byName).To(HaveLen(4))
		Expect(byName["web"].Hostname).To(HaveSuffix(".challenges.example.com"))
		Expect(byName["web"].AppProtocol).To(Equal("http"))
		Expect(!byName["web"].TLS && byName["chat"].TLS && !byName["game"].TLS).To(BeTrue(), "port 80 is plain HTTP")
		Expect(byName["web"].Port).To(Equal(int32(80)))
		Expect(byName["chat"].Port).To(Equal(int32(443)))
		Expect(byName["web"].URL).To(Equal("http://" + byName["web"].Hostname))
		Expect(byName["chat"].URL).To(Equal("tls://" + byName["chat"].Hostname + ":443"))
		Expect(byName["game"].URL).To(Equal(fmt.Sprintf("tcp://challenges.example.com:%d", byName["game"].Port)))
		Expect(byName["game-udp"].URL).To(Equal(fmt.Sprintf("udp://challenges.example.com:%d", byName["game-udp"].Port)))
		var nodePort corev1.Service
		Expect(k8s.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: "pwn-node-port"}, &nodePort)).To(Succeed())
		for _, p := range nodePort.Spec.Ports {
			e := byName["game"]
			if p.Protocol == corev1.ProtocolUDP {
				e = byName["game-udp"]
			}
			Expect(e.Port).To(Equal(p.NodePort))
			Expect(e.Protocol).To(Equal(string(p.Protocol)))
			Expect(e.Hostname).To(Equal("challenges.example.com"))
		}
		Expect(inprocess.Metric("berg_challengeinstance_node_ports")).To(BeNumerically(">", 0))
		for _, container := range []string{"web", "pwn", "db"} {
			Expect(bergtest.VariablesOf(ctx, s.Namespace, container)).To(And(
				HaveKeyWithValue("DB_ENDPOINT", "db:5432"),
				HaveKeyWithValue("WEB_ENDPOINT", byName["web"].Hostname+":80"),
				HaveKey("CHAT_ENDPOINT"), HaveKey("GAME_ENDPOINT"), HaveKey("GAME_UDP_ENDPOINT"),
				HaveKeyWithValue("CHALLENGE_NAMESPACE", s.Namespace)))
		}
	})

	It("shows every phase to a watch, and leaves nothing behind", Label("versions"), func(ctx context.Context) {
		ns := bergtest.Publish(ctx, "watched", bergtest.Misbehaving("not-ready"))
		// A watch that begins after the creation may begin with a later phase.
		all := bergtest.Versions(ctx, &bergv1.ChallengeInstance{ObjectMeta: metav1.ObjectMeta{Namespace: ns}})
		i := bergtest.Instance(ctx, ns, "watched", func(i *bergv1.ChallengeInstance) { i.GenerateName, i.Name = "", "watched" })
		Expect(i.Status.Phase).To(Equal(bergv1.PhasePending), "the answer to its creation has no phase")
		expect.Reaches(ctx, i, bergv1.PhaseStarting)
		Expect(i.Status.ReadyAt).To(BeNil())
		bergtest.Behave(ctx, i, "ready")
		expect.Reaches(ctx, i, bergv1.PhaseRunning)
		Expect(k8s.Delete(ctx, i)).To(Succeed())

		var phases []bergv1.Phase
		var last *bergv1.ChallengeInstance
		for done := false; !done; {
			var e watch.Event
			Eventually(all).Should(Receive(&e))
			last = e.Object.(*bergv1.ChallengeInstance)
			if p := last.Status.Phase; len(phases) == 0 || phases[len(phases)-1] != p {
				phases = append(phases, p)
			}
			done = e.Type == watch.Deleted
		}
		Expect(phases).To(HaveExactElements(
			bergv1.PhasePending, bergv1.PhaseCreating, bergv1.PhaseStarting, bergv1.PhaseRunning, bergv1.PhaseTerminating, bergv1.PhaseTerminated,
		))
		Expect(last.Status.TerminatedAt).NotTo(BeNil())
		Expect(meta.IsStatusConditionTrue(last.Status.Conditions, bergv1.ConditionNamespaceDeleted)).To(BeTrue())
		bergtest.Gone(ctx, i)
		for _, reason := range []string{bergv1.ReasonInstanceCreating, bergv1.ReasonInstanceReady, bergv1.ReasonInstanceEnding} {
			expect.Event(ctx, i, corev1.EventTypeNormal, reason)
		}
	})

	It("fails when it is not ready by the start deadline, keeps trying, and recovers", func(ctx context.Context) {
		ns := bergtest.Publish(ctx, "late", bergtest.Misbehaving("image-pull"))
		inprocess.Restart(map[string]string{"CHALLENGE_START_DEADLINE": "2s"}, nil)
		i := bergtest.Instance(ctx, ns, "late")
		expect.Reaches(ctx, i, bergv1.PhaseFailed)
		expect.Shows(ctx, i, bergv1.ConditionPodsReady, metav1.ConditionFalse, bergv1.ReasonStartDeadline)
		expect.Says(ctx, i, "ImagePullBackOff", "it does not say what it waited for")
		Expect(time.Since(i.Status.StartedAt.Time)).To(BeNumerically(">=", 2*time.Second), "it failed early")
		expect.Event(ctx, i, corev1.EventTypeWarning, bergv1.ReasonStartDeadline)
		Expect(bergtest.PodsByContainer(ctx, i)).To(HaveKey("web"), "the pods do not continue to try")
		Expect(i.Status.ExpiresAt).NotTo(BeNil())

		bergtest.Behave(ctx, i, "ready")
		expect.Reaches(ctx, i, bergv1.PhaseRunning)
		expect.Shows(ctx, i, bergv1.ConditionHealthy, metav1.ConditionTrue, bergv1.ReasonReady)
	})

	It("stays Running in a crash loop, and says that it is not healthy", func(ctx context.Context) {
		i := bergtest.StartRunning(ctx, "crashing", bergtest.OneContainer)
		readyAt := i.Status.ReadyAt
		bergtest.Behave(ctx, i, "crash")
		expect.Shows(ctx, i, bergv1.ConditionHealthy, metav1.ConditionFalse, "CrashLoopBackOff")
		Expect(i.Status.Phase).To(Equal(bergv1.PhaseRunning))
		expect.Event(ctx, i, corev1.EventTypeWarning, "CrashLoopBackOff")
		bergtest.Behave(ctx, i, "ready")
		expect.Shows(ctx, i, bergv1.ConditionHealthy, metav1.ConditionTrue, bergv1.ReasonReady)
		Expect(i.Status.ReadyAt).To(Equal(readyAt))
	})

	It("is not healthy because a container that keeps ending runs for a moment, and is after a while, without an event", func(ctx context.Context) {
		i := bergtest.StartRunning(ctx, "attempts", bergtest.OneContainer)
		pods := apiserver.List[corev1.PodList](ctx, client.InNamespace(i.Status.Namespace))
		Expect(pods.Items).To(HaveLen(1))
		p := &pods.Items[0]
		before := p.DeepCopy()
		s := &p.Status.ContainerStatuses[0]
		s.RestartCount = 3
		s.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
		s.LastTerminationState = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed"}}
		Expect(s.Ready).To(BeTrue())
		// What the kubelet reports between two attempts: the pod is ready again.
		p.Status.Conditions[slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady })].Status = corev1.ConditionFalse
		Expect(k8s.Status().Patch(ctx, p, client.MergeFrom(before))).To(Succeed())
		before = p.DeepCopy()
		p.Status.Conditions[slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady })].Status = corev1.ConditionTrue
		Expect(k8s.Status().Patch(ctx, p, client.MergeFrom(before))).To(Succeed())

		expect.Shows(ctx, i, bergv1.ConditionHealthy, metav1.ConditionFalse, "CrashLoopBackOff")
		expect.Says(ctx, i, "its program ended by itself, with exit code 0", "it does not say how it ended")
		expect.Shows(ctx, i, bergv1.ConditionHealthy, metav1.ConditionTrue, bergv1.ReasonReady)
		Expect(time.Since(p.Status.ContainerStatuses[0].State.Running.StartedAt.Time)).To(BeNumerically(">", 8*time.Second), "it was healthy for a moment")
	})

	It("has its pods protected from eviction while they serve, and not while they crash", func(ctx context.Context) {
		i := bergtest.StartRunning(ctx, "evicted", bergtest.OneContainer)
		evict := func() error {
			var pods corev1.PodList
			if err := k8s.List(ctx, &pods, client.InNamespace(i.Status.Namespace)); err != nil {
				return err
			}
			if len(pods.Items) != 1 {
				return fmt.Errorf("%d pods", len(pods.Items))
			}
			return k8s.SubResource("eviction").Create(ctx, &pods.Items[0], &policyv1.Eviction{})
		}
		Expect(apierrors.IsTooManyRequests(evict())).To(BeTrue(), "the pod of a player was evicted")
		before := bergtest.PodsByContainer(ctx, i)

		bergtest.Behave(ctx, i, "crash")
		expect.Shows(ctx, i, bergv1.ConditionHealthy, metav1.ConditionFalse, "CrashLoopBackOff")
		Eventually(evict).Should(Succeed(), "a pod that serves no player blocks the drain of its node")
		Eventually(func() any { return bergtest.PodsByContainer(ctx, i) }).Should(And(HaveLen(1), Not(Equal(before))))
		expect.Shows(ctx, i, bergv1.ConditionHealthy, metav1.ConditionTrue, bergv1.ReasonReady)
	})

	It("puts back what is deleted or changed by hand, and prunes what it no longer wants", Label("versions"), func(ctx context.Context) {
		i := bergtest.StartRunning(ctx, "drift", bergtest.EveryKind)
		in := client.InNamespace(i.Status.Namespace)
		for _, object := range []client.Object{
			&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "db"}},
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "flag-content"}},
			&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "db-pdb"}},
			&gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Name: "web-8080"}},
			&gatewayv1.TLSRoute{ObjectMeta: metav1.ObjectMeta{Name: "web-7000"}},
			&ciliumv2.CiliumNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "challenge-network-policy"}},
			&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "db"}},
		} {
			object.SetNamespace(i.Status.Namespace)
			Expect(k8s.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
			old := object.GetUID()
			Expect(k8s.Delete(ctx, object)).To(Succeed())
			Eventually(func(g Gomega) {
				g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
				g.Expect(object.GetUID()).NotTo(Equal(old))
			}).Should(Succeed(), "%T %s does not come back", object, object.GetName())
		}

		deployment := &appsv1.Deployment{}
		key := client.ObjectKey{Namespace: i.Status.Namespace, Name: "db"}
		Expect(k8s.Get(ctx, key, deployment)).To(Succeed())
		before := deployment.DeepCopy()
		deployment.Spec.Template.Spec.Containers[0].Image = "example.com/evil:1"
		Expect(k8s.Patch(ctx, deployment, client.StrategicMergeFrom(before))).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(k8s.Get(ctx, key, deployment)).To(Succeed())
			g.Expect(deployment.Spec.Template.Spec.Containers[0].Image).To(Equal("example.com/db:1"))
		}).Should(Succeed())

		extra := &corev1.Service{ObjectMeta: metav1.ObjectMeta{
			Namespace: i.Status.Namespace, Name: "extra",
			Labels:      map[string]string{bergv1.LabelManagedBy: bergv1.ManagedBy},
			Annotations: map[string]string{bergv1.AnnotationInstanceUID: string(i.UID)},
		}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}}}
		Expect(k8s.Create(ctx, extra)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(apiserver.Names(ctx, &corev1.ServiceList{}, in)).NotTo(ContainElement("extra"))
		}).Should(Succeed())
	})

	It("costs no write when nothing has changed, not even after a restart", Label("versions"), func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		c := bergtest.Challenge(ctx, ns, "quiet", bergtest.EveryKind)
		i := bergtest.Running(ctx, ns, "quiet")

		var writes atomic.Int64
		stop := inprocess.Run(nil, countingOf(i, &writes))
		defer stop()
		// An edit that does not matter to instances wakes both operators; the new
		// one has by then seen everything at least once.
		edited := client.MergeFrom(c.DeepCopy())
		c.Spec.Description = "other words"
		Expect(k8s.Patch(ctx, c, edited)).To(Succeed())
		Consistently(writes.Load).WithContext(ctx).WithTimeout(5 * time.Second).Should(BeZero())
	})

	It("copies the pull secret, its data alone", func(ctx context.Context) {
		source := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: installed.Namespace, Name: "registry", Labels: map[string]string{"foreign": "yes"}},
			Type:       corev1.SecretTypeDockerConfigJson,
			Data:       map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{}}`)},
		}
		apiserver.Create(ctx, source)
		i := bergtest.StartRunning(ctx, "private", bergtest.OneContainer)
		ns := i.Namespace
		var copied corev1.Secret
		Expect(k8s.Get(ctx, client.ObjectKey{Namespace: i.Status.Namespace, Name: "registry"}, &copied)).To(Succeed())
		Expect(copied.Data).To(Equal(source.Data))
		Expect(copied.Type).To(Equal(source.Type))
		Expect(copied.Labels).NotTo(HaveKey("foreign"))
		Expect(copied.OwnerReferences).To(BeEmpty())

		By("deleting the copy of one whose image cannot be pulled")
		bergtest.Challenge(ctx, ns, "unpulled", bergtest.Misbehaving("image-pull"))
		i = bergtest.Instance(ctx, ns, "unpulled")
		expect.Shows(ctx, i, bergv1.ConditionPodsReady, metav1.ConditionFalse, "ImagePullBackOff")
		key := client.ObjectKey{Namespace: i.Status.Namespace, Name: "registry"}
		Expect(k8s.Delete(ctx, bergtest.Blank(&corev1.Secret{}, key))).To(Succeed())
		// The kubelet tries again.
		for pod := range bergtest.PodsByContainer(ctx, i) {
			Expect(k8s.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(key.Namespace), client.MatchingLabels{bergv1.LabelContainer: pod})).To(Succeed())
		}
		Eventually(func() error { return k8s.Get(ctx, key, &copied) }).Should(Succeed())
		Expect(copied.Data).To(Equal(source.Data))
	})

	It("builds and deletes twenty at the same time", func(ctx context.Context) {
		ns := bergtest.Publish(ctx, "crowd", bergtest.EveryKind)
		const crowd = 20
		instances := make([]*bergv1.ChallengeInstance, crowd)
		var wg sync.WaitGroup
		for n := range crowd {
			wg.Go(func() {
				defer GinkgoRecover()
				instances[n] = bergtest.Instance(ctx, ns, "crowd")
			})
		}
		wg.Wait()
		bergtest.AllRun(ctx, instances...)
		Expect(k8s.DeleteAllOf(ctx, &bergv1.ChallengeInstance{}, client.InNamespace(ns))).To(Succeed())
		bergtest.AllGone(ctx, instances...)
	})
})

// counting counts the requests that change an instance or something of it.
type counting struct {
	next            http.RoundTripper
	name, namespace string
	writes          *atomic.Int64
}

// countingOf copies the names of the instance, which its spec reads again while the operator runs.
func countingOf(i *bergv1.ChallengeInstance, writes *atomic.Int64) inprocess.Wrap {
	name, namespace := i.Name, i.Status.Namespace
	return func(next http.RoundTripper) http.RoundTripper { return counting{next, name, namespace, writes} }
}

func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	about := strings.Contains(r.URL.Path, c.namespace) || strings.Contains(r.URL.Path, "/challengeinstances/"+c.name)
	if r.Method != http.MethodGet && about {
		c.writes.Add(1)
	}
	return c.next.RoundTrip(r)
}
