package apply

import (
	"context"
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/transport"
)

const (
	// webAndBot and webAndDB share the container web, to the last variable.
	webAndBot = `containers:
- {hostname: web, image: "example.com/web:1", ports: [{name: web, port: 8080, type: publicHttpRoute}]}
- {hostname: bot, image: "example.com/bot:1", ports: [{port: 9000}]}
`
	webAndDB = `containers:
- {hostname: web, image: "example.com/web:1", ports: [{name: web, port: 8080, type: publicHttpRoute}]}
- {hostname: db, image: "example.com/db:1", ports: [{port: 5432}]}
`
)

var _ = Describe("A Challenge that is edited while an instance runs", func() {
	It("changes nothing but UpToDate, also where something is repaired, until a rollout", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		c := bergtest.Challenge(ctx, ns, "edited", webAndBot)
		i := bergtest.Running(ctx, ns, "edited")
		Expect(i.Status.ChallengeGeneration).To(Equal(c.Generation))
		in := client.InNamespace(i.Status.Namespace)
		before := bergtest.PodsByContainer(ctx, i)
		Expect(before).To(HaveLen(2))

		bergtest.Respecify(ctx, c, webAndDB)
		expect.Shows(ctx, i, bergv1.ConditionUpToDate, metav1.ConditionFalse, bergv1.ReasonChallengeChanged)
		Expect(i.Status.Phase).To(Equal(bergv1.PhaseRunning))
		Expect(apiserver.Names(ctx, &appsv1.DeploymentList{}, in)).To(ConsistOf("web", "bot"))
		Expect(k8s.Delete(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: i.Status.Namespace, Name: "bot"}})).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(k8s.Get(ctx, client.ObjectKey{Namespace: i.Status.Namespace, Name: "bot"}, &corev1.Service{})).To(Succeed())
		}).Should(Succeed(), "what was started with is not repaired")
		Expect(bergtest.PodsByContainer(ctx, i)).To(Equal(before), "a player's pod was restarted")

		By("a rollout: what is new comes, what is gone goes, the rest stays as it is")
		bergtest.RollOut(ctx, i, "1")
		expect.Shows(ctx, i, bergv1.ConditionUpToDate, metav1.ConditionTrue, bergv1.ReasonUpToDate)
		Expect(i.Status.ChallengeGeneration).To(Equal(c.Generation))
		Expect(i.Status.ObservedRollout).To(Equal("1"))
		Eventually(func(g Gomega) {
			g.Expect(apiserver.Names(ctx, &appsv1.DeploymentList{}, in)).To(ConsistOf("web", "db"))
			g.Expect(apiserver.Names(ctx, &corev1.ServiceList{}, in)).To(ConsistOf("web", "db"))
			g.Expect(apiserver.Names(ctx, &policyv1.PodDisruptionBudgetList{}, in)).To(ConsistOf("web-pdb", "db-pdb"))
			after := bergtest.PodsByContainer(ctx, i)
			g.Expect(after).To(HaveLen(2))
			g.Expect(after).To(HaveKeyWithValue("web", before["web"]), "the pod of an unchanged container was restarted")
			g.Expect(after).To(HaveKey("db"))
		}).Should(Succeed())
		expect.Shows(ctx, i, bergv1.ConditionHealthy, metav1.ConditionTrue, bergv1.ReasonReady)

		By("the same value again does nothing, an edit back makes it up to date without a rollout")
		bergtest.Respecify(ctx, c, webAndBot)
		expect.Shows(ctx, i, bergv1.ConditionUpToDate, metav1.ConditionFalse, bergv1.ReasonChallengeChanged)
		bergtest.Respecify(ctx, c, webAndDB)
		expect.Shows(ctx, i, bergv1.ConditionUpToDate, metav1.ConditionTrue, bergv1.ReasonUpToDate)
	})

	It("replaces the Service of a container that gets its first port or loses its last one", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		without := `containers: [{hostname: web, image: "example.com/web:1"}]`
		with := `containers: [{hostname: web, image: "example.com/web:1", ports: [{port: 8080}]}]`
		c := bergtest.Challenge(ctx, ns, "ports", without)
		i := bergtest.Running(ctx, ns, "ports")
		key := client.ObjectKey{Namespace: i.Status.Namespace, Name: "web"}
		service := &corev1.Service{}
		Expect(k8s.Get(ctx, key, service)).To(Succeed(), "a container without ports has no name")
		Expect(service.Spec.ClusterIP).To(Equal(corev1.ClusterIPNone))

		bergtest.Respecify(ctx, c, with)
		bergtest.RollOut(ctx, i, "1")
		expect.Shows(ctx, i, bergv1.ConditionUpToDate, metav1.ConditionTrue, bergv1.ReasonUpToDate)
		Eventually(func(g Gomega) {
			g.Expect(k8s.Get(ctx, key, service)).To(Succeed())
			g.Expect(service.Spec.ClusterIP).NotTo(Equal(corev1.ClusterIPNone), "no route leads to a headless Service")
			g.Expect(service.Spec.Ports).To(HaveLen(1))
		}).Should(Succeed())

		bergtest.Respecify(ctx, c, without)
		bergtest.RollOut(ctx, i, "2")
		expect.Shows(ctx, i, bergv1.ConditionUpToDate, metav1.ConditionTrue, bergv1.ReasonUpToDate)
		Eventually(func(g Gomega) {
			g.Expect(k8s.Get(ctx, key, service)).To(Succeed())
			g.Expect(service.Spec.ClusterIP).To(Equal(corev1.ClusterIPNone))
			g.Expect(service.Spec.Ports).To(BeEmpty())
		}).Should(Succeed())
		expect.Shows(ctx, i, bergv1.ConditionHealthy, metav1.ConditionTrue, bergv1.ReasonReady)
	})

	It("is adopted without a rollout by an instance that never ran, and by none that did", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		c := bergtest.Challenge(ctx, ns, "edited", bergtest.OneContainer)
		ran := bergtest.Running(ctx, ns, "edited")
		before := bergtest.PodsByContainer(ctx, ran)

		bergtest.Respecify(ctx, c, bergtest.Misbehaving("image-pull"))
		i := bergtest.Instance(ctx, ns, "edited")
		expect.Shows(ctx, i, bergv1.ConditionPodsReady, metav1.ConditionFalse, "ImagePullBackOff")

		By("an edit that cannot be run")
		bergtest.Respecify(ctx, c, `containers: [{hostname: a, image: i, readinessProbe: {periodSeconds: 5}}]`)
		expect.Shows(ctx, i, bergv1.ConditionUpToDate, metav1.ConditionFalse, bergv1.ReasonInvalidChallenge)

		By("an edit that can")
		bergtest.Respecify(ctx, c, webAndDB)
		expect.Reaches(ctx, i, bergv1.PhaseRunning)
		expect.Shows(ctx, i, bergv1.ConditionUpToDate, metav1.ConditionTrue, bergv1.ReasonUpToDate)
		Expect(i.Status.ChallengeGeneration).To(Equal(c.Generation))
		Expect(apiserver.Names(ctx, &appsv1.DeploymentList{}, client.InNamespace(i.Status.Namespace))).To(ConsistOf("web", "db"))
		expect.Shows(ctx, ran, bergv1.ConditionUpToDate, metav1.ConditionFalse, bergv1.ReasonChallengeChanged)
		Expect(bergtest.PodsByContainer(ctx, ran)).To(Equal(before), "a player's pod was restarted")
	})

	It("is not adopted while it cannot be run, and is when it is fixed", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		c := bergtest.Challenge(ctx, ns, "broken", bergtest.OneContainer)
		i := bergtest.Running(ctx, ns, "broken", func(i *bergv1.ChallengeInstance) { i.Spec.Flag = "" })
		before := bergtest.PodsByContainer(ctx, i)
		for _, bad := range []struct{ spec, reason string }{
			{`containers: [{hostname: a, image: i, readinessProbe: {periodSeconds: 5}}]`, bergv1.ReasonInvalidChallenge},
			{`description: nothing runs`, bergv1.ReasonNothingToRun},
			{`containers: [{hostname: web, image: i, dynamicFlag: {env: {name: FLAG}}}]`, bergv1.ReasonFlagMissing},
		} {
			bergtest.Respecify(ctx, c, bad.spec)
			bergtest.RollOut(ctx, i, bad.reason)
			expect.Shows(ctx, i, bergv1.ConditionUpToDate, metav1.ConditionFalse, bad.reason)
			Expect(i.Status.Phase).To(Equal(bergv1.PhaseRunning))
			Expect(i.Status.ObservedRollout).To(BeEmpty())
			Expect(bergtest.PodsByContainer(ctx, i)).To(Equal(before))
		}
		bergtest.Respecify(ctx, c, webAndDB)
		expect.Shows(ctx, i, bergv1.ConditionUpToDate, metav1.ConditionTrue, bergv1.ReasonUpToDate)
		Expect(i.Status.ObservedRollout).To(Equal(bergv1.ReasonFlagMissing), "the last rollout that was asked for")
		Expect(apiserver.Names(ctx, &appsv1.DeploymentList{}, client.InNamespace(i.Status.Namespace))).To(ConsistOf("web", "db"))
	})
})

var _ = Describe("A rollout that is asked for right after an edit", func() {
	It("adopts that edit, also where the operator has not seen it yet", func(ctx context.Context) {
		late := &transport.Delay{Match: func(r *http.Request) bool {
			return r.URL.Path == "/apis/berg.norelect.ch/v1/challenges" && r.URL.Query().Has("watch")
		}}
		DeferCleanup(late.Release)
		inprocess.Restart(nil, late.Wrap)
		ns := bergtest.Namespace(ctx)
		c := bergtest.Challenge(ctx, ns, "late", bergtest.OneContainer)
		i := bergtest.Running(ctx, ns, "late")

		late.Hold()
		bergtest.Respecify(ctx, c, `containers: [{hostname: web, image: "example.com/web:edited"}]`)
		bergtest.RollOut(ctx, i, "1")
		Eventually(func(g Gomega) {
			var d appsv1.Deployment
			g.Expect(k8s.Get(ctx, client.ObjectKey{Namespace: i.Status.Namespace, Name: "web"}, &d)).To(Succeed())
			g.Expect(d.Spec.Template.Spec.Containers[0].Image).To(Equal("example.com/web:edited"))
		}).Should(Succeed())

		late.Release()
		expect.Becomes(ctx, i, func(g Gomega) {
			g.Expect(i.Status.ChallengeGeneration).To(Equal(c.Generation))
			g.Expect(meta.IsStatusConditionTrue(i.Status.Conditions, bergv1.ConditionUpToDate)).To(BeTrue(), "%s", expect.Conditions(i))
		})
	})
})

var _ = Describe("A configuration that is changed while an instance runs", func() {
	It("changes nothing but UpToDate, also where something is repaired, until a rollout", func(ctx context.Context) {
		i := bergtest.StartRunning(ctx, "configured", webAndBot)
		before, reported := bergtest.PodsByContainer(ctx, i), i.Status.Services
		Expect(reported).To(HaveLen(1))
		image := func() corev1.PodSpec {
			var d appsv1.Deployment
			Expect(k8s.Get(ctx, client.ObjectKey{Namespace: i.Status.Namespace, Name: "bot"}, &d)).To(Succeed())
			return d.Spec.Template.Spec
		}
		was := image()

		inprocess.Restart(map[string]string{
			"CHALLENGE_DOMAIN": "moved.example.com", "CHALLENGE_HTTP_PORT": "8080", "CHALLENGE_HTTP_TLS": "false", "CHALLENGE_TLS_PORT": "8444",
			"CHALLENGE_CPU_LIMIT": "77m", "CHALLENGE_CPU_REQUEST": "7m",
			"CHALLENGE_MEMORY_LIMIT": "77Mi", "CHALLENGE_MEMORY_REQUEST": "7Mi",
			"CHALLENGE_EGRESS_BANDWIDTH": "7M", "CHALLENGE_INGRESS_BANDWIDTH": "7M",
			"CHALLENGE_IMAGE_PULL_POLICY": "Never", "PULL_SECRET_NAME": "another",
		}, nil)
		expect.Shows(ctx, i, bergv1.ConditionUpToDate, metav1.ConditionFalse, bergv1.ReasonConfigurationChanged)
		Expect(i.Status.Phase).To(Equal(bergv1.PhaseRunning))
		Expect(i.Status.Services).To(Equal(reported), "players got another address")
		Expect(k8s.Delete(ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: i.Status.Namespace, Name: "bot"}})).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(bergtest.PodsByContainer(ctx, i)).To(HaveKeyWithValue("bot", Not(Equal(before["bot"]))))
		}).Should(Succeed())
		Expect(image()).To(Equal(was), "what was started with is not repaired")
		Expect(bergtest.PodsByContainer(ctx, i)).To(HaveKeyWithValue("web", before["web"]), "a player's pod was restarted")

		By("a rollout adopts it")
		bergtest.RollOut(ctx, i, "1")
		expect.Shows(ctx, i, bergv1.ConditionUpToDate, metav1.ConditionTrue, bergv1.ReasonUpToDate)
		Expect(i.Status.Services[0].Hostname).To(HaveSuffix(".moved.example.com"))
		Expect(i.Status.Services[0].TLS).To(BeFalse())
		Expect(i.Status.Services[0].URL).To(Equal("http://" + i.Status.Services[0].Hostname + ":8080"))
		Eventually(func(g Gomega) {
			g.Expect(image().Containers[0].ImagePullPolicy).To(Equal(corev1.PullNever))
			g.Expect(image().Containers[0].Resources.Limits.Cpu().String()).To(Equal("77m"))
			g.Expect(image().ImagePullSecrets).To(ConsistOf(corev1.LocalObjectReference{Name: "another"}))
		}).Should(Succeed())
	})
})

var _ = Describe("A Challenge that is deleted while an instance runs", func() {
	It("is missed, and the instance runs on, is repaired and follows a new one of that name", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		c := bergtest.Challenge(ctx, ns, "withdrawn", bergtest.OneContainer)
		i := bergtest.Running(ctx, ns, "withdrawn")
		before := bergtest.PodsByContainer(ctx, i)

		Expect(k8s.Delete(ctx, c)).To(Succeed())
		expect.Shows(ctx, i, bergv1.ConditionChallengeFound, metav1.ConditionFalse, bergv1.ReasonChallengeMissing)
		expect.Shows(ctx, i, bergv1.ConditionUpToDate, metav1.ConditionUnknown, bergv1.ReasonChallengeMissing)
		Expect(i.Status.Phase).To(Equal(bergv1.PhaseRunning))
		expect.Event(ctx, i, corev1.EventTypeWarning, bergv1.ReasonChallengeMissing)
		Expect(k8s.Delete(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: i.Status.Namespace, Name: "web"}})).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(k8s.Get(ctx, client.ObjectKey{Namespace: i.Status.Namespace, Name: "web"}, &corev1.Service{})).To(Succeed())
		}).Should(Succeed())
		bergtest.RollOut(ctx, i, "nothing to adopt")
		Expect(bergtest.PodsByContainer(ctx, i)).To(Equal(before))

		By("created again, but other")
		c = bergtest.Challenge(ctx, ns, "withdrawn", webAndDB)
		expect.Shows(ctx, i, bergv1.ConditionChallengeFound, metav1.ConditionTrue, bergv1.ReasonFound)
		expect.Shows(ctx, i, bergv1.ConditionUpToDate, metav1.ConditionTrue, bergv1.ReasonUpToDate) // the rollout was asked for

		By("deleted and created again immediately, with the generation that it had")
		Expect(k8s.Delete(ctx, c)).To(Succeed())
		c = bergtest.Challenge(ctx, ns, "withdrawn", bergtest.OneContainer)
		expect.Shows(ctx, i, bergv1.ConditionUpToDate, metav1.ConditionFalse, bergv1.ReasonChallengeChanged)
		Expect(k8s.Delete(ctx, c)).To(Succeed())
		bergtest.Challenge(ctx, ns, "withdrawn", webAndDB)
		expect.Shows(ctx, i, bergv1.ConditionUpToDate, metav1.ConditionTrue, bergv1.ReasonUpToDate)
		Expect(i.Status.Phase).To(Equal(bergv1.PhaseRunning))
	})

	It("deletes the instance where the policy is Stop", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		strict := inprocess.With(map[string]string{"CHALLENGE_WITHDRAWAL_POLICY": "Stop"})
		stopStrict := inprocess.Instead(clock.RealClock{}, strict, nil)
		c := bergtest.Challenge(ctx, ns, "stopped", bergtest.OneContainer)
		other := bergtest.Challenge(ctx, ns, "other", bergtest.OneContainer)
		i, unaffected := bergtest.Instance(ctx, ns, "stopped"), bergtest.Instance(ctx, ns, "other")
		unborn := bergtest.Instance(ctx, ns, "never-was")
		expect.Reaches(ctx, i, bergv1.PhaseRunning)
		expect.Reaches(ctx, unaffected, bergv1.PhaseRunning)
		all := bergtest.Versions(ctx, i)
		Expect(k8s.Delete(ctx, c)).To(Succeed())
		bergtest.Gone(ctx, i)
		Expect(bergtest.LastOf(all, i.UID).Spec.TerminationReason).To(Equal(bergv1.TerminationAdmin))
		expect.Reaches(ctx, unborn, bergv1.PhaseFailed)
		expect.Reaches(ctx, unaffected, bergv1.PhaseRunning)

		By("one that was withdrawn while no operator ran")
		stopStrict()
		Expect(k8s.Delete(ctx, other)).To(Succeed())
		inprocess.Instead(clock.RealClock{}, strict, nil)
		bergtest.Gone(ctx, unaffected)
	})
})
