package life

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/limits"
)

// problem keeps pods away that a Deployment asks for.
type problem struct {
	spec string
	// begin makes it in the namespace of an owner, which exists; end fixes it.
	begin func(ctx context.Context, owner, namespace string) (end func(context.Context))
	says  string
}

var _ = Describe("What keeps pods away", func() {
	DescribeTable("is reported in the API server's words, and the instance continues when it is fixed", Label("versions"), func(ctx context.Context, p problem) {
		ns := bergtest.Publish(ctx, "kept-away", p.spec)
		owner := uuid.NewString()
		lift := bergtest.Refuse(ctx, owner, "apps", "deployments", "CREATE")
		i := bergtest.Instance(ctx, ns, "kept-away", bergtest.OwnedBy(owner))
		expect.Shows(ctx, i, bergv1.ConditionDeploymentsCreated, metav1.ConditionFalse, bergv1.ReasonRefused)
		end := p.begin(ctx, owner, i.Status.Namespace)
		lift()

		c := expectRefused(ctx, i, bergv1.ConditionPodsReady)
		Expect(c.Message).To(And(ContainSubstring("web"), ContainSubstring(p.says)))
		Expect(i.Status.Phase).To(Equal(bergv1.PhaseStarting))
		expect.Event(ctx, i, corev1.EventTypeWarning, bergv1.ReasonRefused)

		end(ctx)
		expect.Reaches(ctx, i, bergv1.PhaseRunning)
		expect.Shows(ctx, i, bergv1.ConditionPodsReady, metav1.ConditionTrue, bergv1.ReasonReady)
		expect.Shows(ctx, i, bergv1.ConditionHealthy, metav1.ConditionTrue, bergv1.ReasonReady)
	},
		Entry("a RuntimeClass that does not exist", problem{
			spec: `containers: [{hostname: web, image: "example.com/web:1", runtimeClassName: missing-integration}]`,
			begin: func(context.Context, string, string) func(context.Context) {
				return func(ctx context.Context) { runtimeClass(ctx, "missing-integration") }
			},
			says: `RuntimeClass "missing-integration" not found`,
		}),
		Entry("a quota of pods", problem{
			spec: bergtest.OneContainer, begin: noneOf(corev1.ResourcePods), says: "exceeded quota: none",
		}),
		Entry("a quota of what Kubernetes makes pods from", problem{
			spec: bergtest.OneContainer, begin: noneOf("count/replicasets.apps"), says: "exceeded quota: none",
		}),
		Entry("a LimitRange", problem{
			spec: bergtest.OneContainer,
			begin: func(ctx context.Context, _, namespace string) func(context.Context) {
				limits := &corev1.LimitRange{
					ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "tight"},
					Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
						Type: corev1.LimitTypeContainer, Max: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Mi")},
					}}},
				}
				Expect(k8s.Create(ctx, limits)).To(Succeed())
				return func(ctx context.Context) { Expect(k8s.Delete(ctx, limits)).To(Succeed()) }
			},
			says: "maximum memory usage per Container is 1Mi",
		}),
		Entry("a policy", problem{
			spec: bergtest.OneContainer,
			begin: func(ctx context.Context, owner, _ string) func(context.Context) {
				lift := bergtest.Refuse(ctx, owner, "", "pods", "CREATE")
				return func(context.Context) { lift() }
			},
			says: apiserver.Refusal,
		}),
	)

	It("is reported for an instance that runs, whose pod is to be replaced", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		c := bergtest.Challenge(ctx, ns, "replaced", bergtest.OneContainer)
		i := bergtest.Running(ctx, ns, "replaced")
		bergtest.Respecify(ctx, c, `containers: [{hostname: web, image: "example.com/web:2", runtimeClassName: missing-replacement}]`)
		bergtest.RollOut(ctx, i, "1")
		Expect(expectRefused(ctx, i, bergv1.ConditionHealthy).Message).To(ContainSubstring(`RuntimeClass "missing-replacement" not found`))
		Expect(i.Status.Phase).To(Equal(bergv1.PhaseRunning))
		expect.Event(ctx, i, corev1.EventTypeWarning, bergv1.ReasonRefused)
		runtimeClass(ctx, "missing-replacement")
		expect.Shows(ctx, i, bergv1.ConditionHealthy, metav1.ConditionTrue, bergv1.ReasonReady)
	})

	It("is tried again every minute, by one write", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		owner := uuid.NewString()
		lift := bergtest.Refuse(ctx, owner, "", "pods", "CREATE")
		bergtest.Challenge(ctx, ns, "again", bergtest.OneContainer)
		i := bergtest.Instance(ctx, ns, "again", bergtest.OwnedBy(owner))
		expectRefused(ctx, i, bergv1.ConditionPodsReady)
		inprocess.Pause()

		// Kubernetes copies what is new to the ReplicaSet, and tries to make its pods.
		tried := func() string {
			GinkgoHelper()
			sets := apiserver.List[appsv1.ReplicaSetList](ctx, client.InNamespace(i.Status.Namespace))
			Expect(sets.Items).To(HaveLen(1))
			return sets.Items[0].Annotations[bergv1.AnnotationRetriedAt]
		}
		Expect(tried()).To(BeEmpty(), "in the first minute")
		later := clocktesting.NewFakePassiveClock(time.Now().Add(10 * time.Minute))
		var writes atomic.Int64
		stop := inprocess.Instead(later, nil, countingOf(i, &writes))
		Eventually(tried).Should(Equal(later.Now().UTC().Format(time.RFC3339)))
		Consistently(writes.Load).WithTimeout(3 * time.Second).Should(BeEquivalentTo(1))
		stop()

		latest := clocktesting.NewFakePassiveClock(later.Now().Add(2 * time.Minute))
		inprocess.Instead(latest, nil, nil)
		Eventually(tried).Should(Equal(latest.Now().UTC().Format(time.RFC3339)))
		lift()
		expect.Reaches(ctx, i, bergv1.PhaseRunning)
		expect.Shows(ctx, i, bergv1.ConditionDeploymentsCreated, metav1.ConditionTrue, bergv1.ReasonCreated)
		// An operator of the present would take its times back.
		bergtest.Delete(ctx, i)
	})
})

var _ = Describe("What a node refuses", func() {
	It("is reported in the runtime's words where a container cannot be started", func(ctx context.Context) {
		i := unready(ctx)
		crashes(ctx, i, corev1.ContainerStateTerminated{
			Reason: "StartError", ExitCode: 128, Message: `exec: "/nope": stat /nope: no such file or directory`,
		})
		expectFalse(ctx, i, bergv1.ConditionPodsReady, "CrashLoopBackOff", `exec: "/nope": stat /nope: no such file or directory`)
		expect.Event(ctx, i, corev1.EventTypeWarning, "CrashLoopBackOff")
		bergtest.Behave(ctx, i, "ready")
		expect.Reaches(ctx, i, bergv1.PhaseRunning)
	})

	It("says how a container ended, and not what it wrote", func(ctx context.Context) {
		i := unready(ctx)
		crashes(ctx, i, corev1.ContainerStateTerminated{Reason: "OOMKilled", ExitCode: 137, Message: "galf reversed"})
		expectFalse(ctx, i, bergv1.ConditionPodsReady, "CrashLoopBackOff", "exit code 137 (OOMKilled)")
		crashes(ctx, i, corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 3, Message: "galf reversed"})
		expectFalse(ctx, i, bergv1.ConditionPodsReady, "CrashLoopBackOff", "exit code 3")
		Expect(expect.Conditions(i)).NotTo(ContainSubstring("galf"))
	})

	It("is reported for a pod that gets no sandbox, until it has one", func(ctx context.Context) {
		i := unready(ctx)
		sandboxFails(ctx, i, "first", `failed to setup network for sandbox "`+sandboxName('a')+`": no plugin`)
		expectFalse(ctx, i, bergv1.ConditionPodsReady, "FailedCreatePodSandBox", `failed to setup network for sandbox "...": no plugin`)
		expect.Event(ctx, i, corev1.EventTypeWarning, "FailedCreatePodSandBox")

		By("each try having a name of its own, which is no news")
		version := i.ResourceVersion
		sandboxFails(ctx, i, "second", `failed to setup network for sandbox "`+sandboxName('b')+`": no plugin`)
		Consistently(func(g Gomega) {
			g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(i), i)).To(Succeed())
			g.Expect(i.ResourceVersion).To(Equal(version), expect.Conditions(i))
		}).WithTimeout(2 * time.Second).Should(Succeed())

		By("the latest counting")
		sandboxFails(ctx, i, "third", `no runtime for "nope" is configured`)
		expectFalse(ctx, i, bergv1.ConditionPodsReady, "FailedCreatePodSandBox", `no runtime for "nope" is configured`)

		By("getting one")
		setPods(ctx, i, func(p *corev1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue})
		})
		expect.Shows(ctx, i, bergv1.ConditionPodsReady, metav1.ConditionUnknown, bergv1.ReasonStarting)
		bergtest.Behave(ctx, i, "ready")
		expect.Reaches(ctx, i, bergv1.PhaseRunning)
		expect.Shows(ctx, i, bergv1.ConditionHealthy, metav1.ConditionTrue, bergv1.ReasonReady)
	})
})

var _ = Describe("A pod that ended badly", func() {
	evict := func(p *corev1.Pod) {
		p.Status.Phase, p.Status.Reason, p.Status.Message = corev1.PodFailed, "Evicted", "The node was low on resource: memory."
		for n := range p.Status.Conditions {
			if p.Status.Conditions[n].Type == corev1.PodReady {
				p.Status.Conditions[n].Status = corev1.ConditionFalse
			}
		}
	}

	It("does not spoil an instance that runs", func(ctx context.Context) {
		i := bergtest.StartRunning(ctx, "evicted", bergtest.OneContainer)
		all := bergtest.Versions(ctx, i)
		setPods(ctx, i, evict)
		untilPods(ctx, i, corev1.PodFailed, corev1.PodRunning)
		expect.Shows(ctx, i, bergv1.ConditionHealthy, metav1.ConditionTrue, bergv1.ReasonReady)
		Expect(i.Status.Phase).To(Equal(bergv1.PhaseRunning))
		Expect(k8s.Delete(ctx, i)).To(Succeed())
		bergtest.LastOf(all, i.UID)
	})

	It("does not keep an instance from its start", func(ctx context.Context) {
		i := unready(ctx)
		setPods(ctx, i, evict)
		untilPods(ctx, i, corev1.PodFailed, corev1.PodRunning)
		bergtest.Behave(ctx, i, "ready")
		expect.Reaches(ctx, i, bergv1.PhaseRunning)
		expect.Shows(ctx, i, bergv1.ConditionHealthy, metav1.ConditionTrue, bergv1.ReasonReady)
	})

	It("does not hide what keeps away the one that should replace it", func(ctx context.Context) {
		ns := bergtest.Publish(ctx, "irreplaceable", bergtest.OneContainer)
		owner := uuid.NewString()
		i := bergtest.Running(ctx, ns, "irreplaceable", bergtest.OwnedBy(owner))
		lift := bergtest.Refuse(ctx, owner, "", "pods", "CREATE")
		setPods(ctx, i, evict)
		Expect(expectRefused(ctx, i, bergv1.ConditionHealthy).Message).To(ContainSubstring(apiserver.Refusal))
		lift()
		expect.Shows(ctx, i, bergv1.ConditionHealthy, metav1.ConditionTrue, bergv1.ReasonReady)
	})
})

// expectRefused waits until Kubernetes tells that it cannot make the pods of an instance, and
// until the instance does, which must not take longer than a second.
func expectRefused(ctx context.Context, i *bergv1.ChallengeInstance, conditionType string) metav1.Condition {
	GinkgoHelper()
	expect.Becomes(ctx, i, func(g Gomega) {
		g.Expect(i.Status.Namespace).NotTo(BeEmpty())
		var d appsv1.Deployment
		g.Expect(k8s.Get(ctx, client.ObjectKey{Namespace: i.Status.Namespace, Name: "web"}, &d)).To(Succeed())
		g.Expect(d.Status.Conditions).To(ContainElement(Or(
			And(HaveField("Type", appsv1.DeploymentReplicaFailure), HaveField("Status", corev1.ConditionTrue)),
			And(HaveField("Type", appsv1.DeploymentProgressing), HaveField("Status", corev1.ConditionFalse)),
		)))
	})
	var c metav1.Condition
	Eventually(func(g Gomega) {
		g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(i), i)).To(Succeed())
		c = *meta.FindStatusCondition(i.Status.Conditions, conditionType)
		g.Expect(string(c.Status)+"/"+c.Reason).To(Equal("False/"+bergv1.ReasonRefused), "conditions: %s", expect.Conditions(i))
	}).WithTimeout(limits.Immediately).Should(Succeed())
	return c
}

// expectFalse waits until a condition is False for a reason, with a text in its message.
func expectFalse(ctx context.Context, i *bergv1.ChallengeInstance, conditionType, reason, text string) {
	GinkgoHelper()
	expect.Becomes(ctx, i, func(g Gomega) {
		c := meta.FindStatusCondition(i.Status.Conditions, conditionType)
		g.Expect(string(c.Status)+"/"+c.Reason).To(Equal("False/"+reason), "conditions: %s", expect.Conditions(i))
		g.Expect(c.Message).To(ContainSubstring(text))
	})
}

func runtimeClass(ctx context.Context, name string) {
	GinkgoHelper()
	class := apiserver.Object(`{apiVersion: node.k8s.io/v1, kind: RuntimeClass, handler: runc}`)
	class.SetName(name)
	apiserver.Create(ctx, class)
}

// noneOf is a quota that allows none of a resource.
func noneOf(what corev1.ResourceName) func(context.Context, string, string) func(context.Context) {
	return func(ctx context.Context, _, namespace string) func(context.Context) {
		GinkgoHelper()
		quota := &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "none"},
			Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{what: resource.MustParse("0")}},
		}
		Expect(k8s.Create(ctx, quota)).To(Succeed())
		expect.Becomes(ctx, quota, func(g Gomega) {
			g.Expect(quota.Status.Hard).NotTo(BeEmpty())
		})
		return func(ctx context.Context) { Expect(k8s.Delete(ctx, quota)).To(Succeed()) }
	}
}

// unready starts an instance whose pod runs and does not become ready.
func unready(ctx context.Context) *bergv1.ChallengeInstance {
	GinkgoHelper()
	ns := bergtest.Publish(ctx, "unready", bergtest.Misbehaving("not-ready"))
	i := bergtest.Instance(ctx, ns, "unready")
	expect.Reaches(ctx, i, bergv1.PhaseStarting)
	untilPods(ctx, i, corev1.PodRunning)
	return i
}

// untilPods waits until the pods of an instance are in these phases.
func untilPods(ctx context.Context, i *bergv1.ChallengeInstance, phases ...corev1.PodPhase) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var list corev1.PodList
		g.Expect(k8s.List(ctx, &list, client.InNamespace(i.Status.Namespace))).To(Succeed())
		var all []corev1.PodPhase
		for _, p := range list.Items {
			all = append(all, p.Status.Phase)
		}
		g.Expect(all).To(ConsistOf(phases))
	}).Should(Succeed())
}

// setPods writes the status of the pods of an instance, as a kubelet does.
func setPods(ctx context.Context, i *bergv1.ChallengeInstance, modify func(*corev1.Pod)) {
	GinkgoHelper()
	list := apiserver.List[corev1.PodList](ctx, client.InNamespace(i.Status.Namespace))
	Expect(list.Items).NotTo(BeEmpty())
	for _, p := range list.Items {
		before := p.DeepCopy()
		modify(&p)
		Expect(k8s.Status().Patch(ctx, &p, client.MergeFrom(before))).To(Succeed())
	}
}

// crashes lets the containers of an instance wait for their next try after they ended.
func crashes(ctx context.Context, i *bergv1.ChallengeInstance, last corev1.ContainerStateTerminated) {
	GinkgoHelper()
	setPods(ctx, i, func(p *corev1.Pod) {
		for n := range p.Status.ContainerStatuses {
			s := &p.Status.ContainerStatuses[n]
			s.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 10s restarting failed container"}}
			s.LastTerminationState = corev1.ContainerState{Terminated: &last}
		}
	})
}

// sandboxFails tells, as a kubelet does, that the runtime refuses the sandbox of a pod.
func sandboxFails(ctx context.Context, i *bergv1.ChallengeInstance, name, text string) {
	GinkgoHelper()
	list := apiserver.List[corev1.PodList](ctx, client.InNamespace(i.Status.Namespace))
	for _, p := range list.Items {
		now := metav1.Now()
		Expect(k8s.Create(ctx, &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name + "." + name},
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID, APIVersion: "v1"},
			Type:           corev1.EventTypeWarning, Reason: "FailedCreatePodSandBox", Message: "Failed to create pod sandbox: " + text,
			Source: corev1.EventSource{Component: "kubelet"}, FirstTimestamp: now, LastTimestamp: now, Count: 1,
		})).To(Succeed())
	}
}

// sandboxName is the name that a runtime gives to a sandbox.
func sandboxName(digit byte) string {
	name := make([]byte, 64)
	for n := range name {
		name[n] = digit
	}
	return string(name)
}
