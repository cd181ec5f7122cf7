package hexactf

import (
	"context"
	"fmt"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/hexactftest"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/limits"
)

// prefix is the beginning of the names of a component's objects.
func prefix(c *hexactfv1.Challenge, component string) string {
	return fmt.Sprintf("chall-42-%s-%s", component, c.Labels[hexactfv1.LabelUser])
}

func get[T client.Object](ctx context.Context, namespace, name string, into T) T {
	GinkgoHelper()
	Expect(k8s.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, into)).To(Succeed())
	return into
}

// running creates a challenge of a definition and waits until it runs.
func running(ctx context.Context, ns, definition string, modify ...func(*hexactfv1.Challenge)) *hexactfv1.Challenge {
	GinkgoHelper()
	c := hexactftest.Challenge(ctx, ns, definition, modify...)
	hexactftest.Reaches(ctx, c, hexactfv1.StateRunning)
	return c
}

var _ = Describe("A challenge", func() {
	It("runs, is reported by messages, and is deleted with its objects", Label("versions"), func(ctx context.Context) {
		ns := hexactftest.Define(ctx, "web", hexactftest.TwoComponents)
		c := hexactftest.New(ns, "web")
		Expect(k8s.Create(ctx, c)).To(Succeed())
		Expect(c.Status).To(BeZero(), "clients look again only if the answer to their POST has no status")
		hexactftest.Reaches(ctx, c, hexactfv1.StateRunning)

		By("its objects")
		web := get(ctx, ns, prefix(c, "web")+"-deploy", &appsv1.Deployment{})
		service := get(ctx, ns, prefix(c, "web")+"-svc", &corev1.Service{})
		db := get(ctx, ns, prefix(c, "db")+"-deploy", &appsv1.Deployment{})
		get(ctx, ns, prefix(c, "db")+"-svc", &corev1.Service{})
		policy := get(ctx, ns, c.Name+"-policy", &networkingv1.NetworkPolicy{})
		published := get(ctx, ns, prefix(c, "web")+"-ingress", &networkingv1.NetworkPolicy{})
		Expect(published.Labels).To(HaveKeyWithValue("apps.hexactf.io/name", "web"))
		Expect(*web.Spec.Replicas).To(Equal(int32(2)))
		Expect(*db.Spec.Replicas).To(Equal(int32(1)), "the default of a definition")
		labels := map[string]string{
			"apps.hexactf.io/instance": prefix(c, "web"), "apps.hexactf.io/name": "web", "apps.hexactf.io/part-of": c.Name,
			"apps.hexactf.io/managed-by": "challenge-operator",
			"apps.hexactf.io/deployment": prefix(c, "web") + "-deploy", "apps.hexactf.io/service": prefix(c, "web") + "-svc",
		}
		Expect(web.Labels).To(Equal(labels))
		Expect(web.Spec.Template.Labels).To(Equal(labels))
		Expect(service.Labels).To(Equal(labels))
		Expect(service.Spec.Selector).To(Equal(map[string]string{"apps.hexactf.io/instance": prefix(c, "web")}))
		// An owner would let the garbage collector delete them before the pods that they confine.
		Expect(policy.OwnerReferences).To(BeEmpty())
		Expect(published.OwnerReferences).To(BeEmpty())
		for _, o := range []client.Object{web, service, db} {
			owner := metav1.GetControllerOf(o)
			Expect(owner).NotTo(BeNil())
			Expect(owner.UID).To(Equal(c.UID))
			Expect(*owner.BlockOwnerDeletion).To(BeTrue())
		}
		pod := web.Spec.Template.Spec
		Expect(*pod.AutomountServiceAccountToken).To(BeFalse())
		Expect(*pod.EnableServiceLinks).To(BeFalse())
		Expect(pod.SecurityContext.SeccompProfile.Type).To(Equal(corev1.SeccompProfileTypeRuntimeDefault))

		By("its status, events and messages")
		Expect(c.Finalizers).To(ContainElement("challenge.hexactf.io/finalizer"))
		Expect(c.Status.Endpoint).To(Equal(service.Spec.Ports[0].NodePort))
		Expect(c.Status.ExpiresAt.Sub(c.Status.StartedAt.Time)).To(Equal(30 * time.Minute))
		expect.Event(ctx, c, corev1.EventTypeNormal, hexactfv1.ReasonRunning)
		expect.Event(ctx, c, corev1.EventTypeNormal, hexactfv1.ReasonCreating)
		platform.Receives(c, hexactfv1.StateCreating, hexactfv1.StateRunning)
		received := platform.About(c)
		Expect(received[0].Endpoint).To(BeEmpty())
		Expect(received[1].Endpoint).To(Equal(strconv.Itoa(int(c.Status.Endpoint))))
		Expect(received[1]).To(HaveField("User", c.Labels[hexactfv1.LabelUser]))
		Expect(received[1]).To(HaveField("ProblemID", "42"))
		Expect(inprocess.Metric("challenge_resource_status", "challenge_name", c.Name)).To(Equal(1.0))

		By("the removal of the acknowledged messages from its status")
		expect.Becomes(ctx, c, func(g Gomega) {
			g.Expect(c.Status.Messages.Outbox).To(BeEmpty())
		})

		hexactftest.Delete(ctx, c)
		expect.Gone(ctx, c)
		platform.Receives(c, hexactfv1.StateCreating, hexactfv1.StateRunning, hexactfv1.StateDeleted)
		for _, o := range []client.Object{web, service, db, policy, published} {
			expect.Gone(ctx, o)
		}
		Expect(inprocess.Metric("challenge_resource_status", "challenge_name", c.Name)).To(Equal(2.0))
	})

	It("is deleted when it expires, and not before", func(ctx context.Context) {
		ns := hexactftest.Define(ctx, "short", hexactftest.OneComponent, hexactftest.Lasting(5*time.Second))
		c := running(ctx, ns, "short")
		over := c.Status.ExpiresAt.Time
		Expect(over.Sub(c.Status.StartedAt.Time)).To(Equal(5 * time.Second))
		expect.Gone(ctx, c)
		Expect(time.Now()).To(And(BeTemporally(">=", over), BeTemporally("<", over.Add(time.Minute))))
		platform.Receives(c, hexactfv1.StateCreating, hexactfv1.StateRunning, hexactfv1.StateDeleted)
		expect.Event(ctx, c, corev1.EventTypeNormal, hexactfv1.ReasonExpired)
	})

	It("expires after half an hour, and a shared one does not", func(ctx context.Context) {
		ns := hexactftest.Define(ctx, "own", hexactftest.OneComponent)
		hexactftest.Definition(ctx, ns, "shared", hexactftest.OneComponent, func(s *hexactfv1.ChallengeDefinitionSpec) { s.IsOne = true })
		own, shared := running(ctx, ns, "own"), running(ctx, ns, "shared")
		Expect(own.Status.IsOne).To(BeFalse())
		Expect(shared.Status.IsOne).To(BeTrue())
		Expect(shared.Status.ExpiresAt).To(BeNil())
		began := own.Status.StartedAt.DeepCopy()

		By("29 minutes later")
		stop := inprocess.Instead(clocktesting.NewFakePassiveClock(began.Add(29*time.Minute)), nil, nil)
		Consistently(func(g Gomega) {
			g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(own), own)).To(Succeed())
			g.Expect(own.DeletionTimestamp).To(BeNil())
		}).WithTimeout(2 * time.Second).Should(Succeed())
		Expect(own.Status.StartedAt.Equal(began)).To(BeTrue(), "the start is written once")
		stop()

		By("30 minutes and a second later")
		inprocess.Instead(clocktesting.NewFakePassiveClock(began.Add(30*time.Minute+time.Second)), nil, nil)
		expect.Gone(ctx, own)
		hexactftest.Reaches(ctx, shared, hexactfv1.StateRunning)
		Expect(shared.DeletionTimestamp).To(BeNil())
	})

	It("is repaired when its objects are changed or deleted", func(ctx context.Context) {
		ns := hexactftest.Define(ctx, "web", hexactftest.OneComponent)
		c := running(ctx, ns, "web")
		service := get(ctx, ns, prefix(c, "web")+"-svc", &corev1.Service{})
		deployment := get(ctx, ns, prefix(c, "web")+"-deploy", &appsv1.Deployment{})
		policy := get(ctx, ns, c.Name+"-policy", &networkingv1.NetworkPolicy{})

		apiserver.Change(ctx, deployment, func() { deployment.Spec.Template.Spec.Containers[0].Image = "example.com/other" })
		Expect(k8s.Delete(ctx, policy)).To(Succeed())
		Expect(k8s.Delete(ctx, service)).To(Succeed())
		expect.Becomes(ctx, deployment, func(g Gomega) {
			g.Expect(deployment.Spec.Template.Spec.Containers[0].Image).To(Equal("example.com/web:1"))
			recreated := &corev1.Service{}
			g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(service), recreated)).To(Succeed())
			g.Expect(recreated.UID).NotTo(Equal(service.UID))
			g.Expect(recreated.Spec.Ports[0].NodePort).To(Equal(service.Spec.Ports[0].NodePort), "players use this node port")
			g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(policy), &networkingv1.NetworkPolicy{})).To(Succeed())
		})
		hexactftest.Reaches(ctx, c, hexactfv1.StateRunning)
		Expect(platform.States(c)).To(Equal([]hexactfv1.State{hexactfv1.StateCreating, hexactfv1.StateRunning}))
	})

	It("stays as it was started when its definition is changed and deleted", func(ctx context.Context) {
		ns := hexactftest.Namespace(ctx)
		d := hexactftest.Definition(ctx, ns, "web", hexactftest.OneComponent)
		c := running(ctx, ns, "web")
		apiserver.Change(ctx, d, func() {
			d.Spec.Components[0].Deployment.Spec.Template.Spec.Containers[0].Image = "example.com/web:2"
			d.Spec.Duration = &metav1.Duration{Duration: time.Second}
		})
		apiserver.Change(ctx, c, func() { c.Labels[hexactfv1.LabelUser] = "mallory" })
		Expect(k8s.Delete(ctx, d)).To(Succeed())
		inprocess.Restart(nil, nil)
		Consistently(func(g Gomega) {
			g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(c), c)).To(Succeed())
			g.Expect(c.DeletionTimestamp).To(BeNil())
			g.Expect(c.Status.CurrentStatus.State).To(Equal(hexactfv1.StateRunning))
			g.Expect(apiserver.Names(ctx, &appsv1.DeploymentList{}, client.InNamespace(ns))).To(HaveLen(1))
		}).WithTimeout(2 * time.Second).Should(Succeed())
	})

	It("is in the metric of dashboards immediately after a restart", func(ctx context.Context) {
		ns := hexactftest.Define(ctx, "web", hexactftest.OneComponent)
		runs := running(ctx, ns, "web")
		waits := hexactftest.Challenge(ctx, ns, "missing")
		hexactftest.Reaches(ctx, waits, hexactfv1.StateError)
		inprocess.Restart(nil, nil)
		Expect(inprocess.Metric("challenge_resource_status", "challenge_name", runs.Name)).To(Equal(1.0))
		Expect(inprocess.Metric("challenge_resource_status", "challenge_name", waits.Name)).To(Equal(3.0))
	})

	It("is not Running before its pods are ready", func(ctx context.Context) {
		ns := hexactftest.Namespace(ctx)
		misbehaving := func(behaviour string) func(*hexactfv1.ChallengeDefinitionSpec) {
			return func(s *hexactfv1.ChallengeDefinitionSpec) {
				s.Components[0].Deployment.Spec.Template.Spec.Containers[0].Image = "berg.test/behaviour/" + behaviour
			}
		}
		hexactftest.Definition(ctx, ns, "slow", hexactftest.OneComponent, misbehaving("slow"))
		hexactftest.Definition(ctx, ns, "no-image", hexactftest.OneComponent, misbehaving("image-pull"))
		inprocess.Restart(map[string]string{"HEXACTF_START_DEADLINE": "12s"}, nil)
		slow := hexactftest.Challenge(ctx, ns, "slow")
		broken := hexactftest.Challenge(ctx, ns, "no-image")
		hexactftest.Reaches(ctx, slow, hexactfv1.StateRunning)
		Expect(slow.Status.RunningAt.Sub(slow.Status.StartedAt.Time)).To(BeNumerically(">=", 4*time.Second))
		expect.Shows(ctx, broken, hexactfv1.ConditionAvailable, metav1.ConditionFalse, hexactfv1.ReasonStartDeadlineExceeded)
		hexactftest.Reaches(ctx, broken, hexactfv1.StateError)
		Expect(broken.Status.CurrentStatus.ErrorMsg).To(And(ContainSubstring("Component web"), ContainSubstring("ImagePullBackOff")))
		platform.Receives(broken, hexactfv1.StateCreating, hexactfv1.StateError)
		Expect(broken.DeletionTimestamp).To(BeNil(), "an error that can still be fixed deletes no challenge")
	})

	It("is not isolated when HEXACTF_ISOLATION is false", func(ctx context.Context) {
		inprocess.Restart(map[string]string{"HEXACTF_ISOLATION": "false"}, nil)
		ns := hexactftest.Define(ctx, "web", hexactftest.OneComponent)
		c := running(ctx, ns, "web")
		pod := get(ctx, ns, prefix(c, "web")+"-deploy", &appsv1.Deployment{}).Spec.Template.Spec
		Expect(pod.AutomountServiceAccountToken).To(BeNil())
		Expect(apiserver.Names(ctx, &networkingv1.NetworkPolicyList{}, client.InNamespace(ns))).To(BeEmpty())
	})

	It("keeps running untouched when another operator has started it", func(ctx context.Context) {
		resume := inprocess.Pause()
		ns := hexactftest.Define(ctx, "web", hexactftest.OneComponent)
		c := hexactftest.Challenge(ctx, ns, "web", func(c *hexactfv1.Challenge) { c.Finalizers = []string{hexactfv1.Finalizer} })
		began := metav1.NewTime(time.Now().Add(-10 * time.Minute).Truncate(time.Second))
		before := c.DeepCopy()
		c.Status.StartedAt, c.Status.Endpoint = &began, 30999
		c.Status.CurrentStatus.State = hexactfv1.StateRunning
		Expect(k8s.Status().Patch(ctx, c, client.MergeFrom(before))).To(Succeed())
		conflicting := &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: ns, Name: prefix(c, "web") + "-deploy", Labels: map[string]string{hexactfv1.LabelManagedBy: hexactfv1.ManagedBy},
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(c, hexactfv1.GroupVersion.WithKind("Challenge"))},
			},
			Spec: appsv1.DeploymentSpec{
				Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.com/c"}}},
				},
			},
		}
		Expect(k8s.Create(ctx, conflicting)).To(Succeed())
		resume()
		expect.Shows(ctx, c, hexactfv1.ConditionDefinitionFound, metav1.ConditionTrue, hexactfv1.ReasonInherited)
		Expect(c.Status.CurrentStatus.State).To(Equal(hexactfv1.StateRunning))
		Expect(c.Status.Endpoint).To(Equal(int32(30999)))
		Expect(c.Status.ExpiresAt.Time).To(BeTemporally("==", began.Add(30*time.Minute)))
		Expect(get(ctx, ns, conflicting.Name, &appsv1.Deployment{}).Generation).To(Equal(int64(1)))
		hexactftest.Delete(ctx, c)
		expect.Gone(ctx, c)
		platform.Receives(c, hexactfv1.StateDeleted)
	})
})

var _ = Describe("When a player starts the same problem again and again,", func() {
	It("a challenge of one name is created and deleted, the last time as quickly as the first", func(ctx context.Context) {
		ns := hexactftest.Define(ctx, "web", hexactftest.OneComponent)
		like := hexactftest.New(ns, "web")
		var took []time.Duration
		for n := range 12 {
			By(fmt.Sprint("challenge ", n+1))
			c := like.DeepCopy()
			began := time.Now()
			Expect(k8s.Create(ctx, c)).To(Succeed())
			hexactftest.Reaches(ctx, c, hexactfv1.StateRunning)
			took = append(took, time.Since(began))
			hexactftest.Delete(ctx, c)
			expect.Gone(ctx, c)
			platform.Receives(c, hexactfv1.StateCreating, hexactfv1.StateRunning, hexactfv1.StateDeleted)
		}
		expect.AsQuick(took)
	}, SpecTimeout(limits.Scaled(10*time.Minute)))
})
