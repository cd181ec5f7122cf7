package queue

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/sealkey"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/installed"
	"github.com/bergctf/berg-operator/test/lib/transport"
)

// secretive is a Challenge with a secret wherever an author can put one.
const secretive = `
containers:
- {hostname: web, image: "example.com/web:1", environment: {ADMIN_PASSWORD: hunter2, COLOUR: red}, ports: [{name: web, port: 8080, type: publicHttpRoute}],
   readinessProbe: {httpGet: {port: 8080, httpHeaders: [{name: Authorization, value: hunter2}]}}}
- {hostname: db, image: "example.com/db:1", command: [db, --password, hunter2], args: [hunter2], livenessProbe: {exec: {command: [check, hunter2]}}}
`

var keySecret = client.ObjectKey{Namespace: installed.Namespace, Name: sealkey.SecretName}

var _ = Describe("What a Challenge keeps secret", func() {
	// running is an instance of the Challenge that runs, and its pods.
	running := func(ctx context.Context) (*bergv1.Challenge, *bergv1.ChallengeInstance, map[string]types.UID) {
		GinkgoHelper()
		ns := bergtest.Namespace(ctx)
		c := bergtest.Challenge(ctx, ns, "secretive", secretive)
		i := bergtest.Instance(ctx, ns, "secretive")
		expect.Reaches(ctx, i, bergv1.PhaseRunning)
		return c, i, bergtest.PodsByContainer(ctx, i)
	}
	unchanged := func(ctx context.Context, i *bergv1.ChallengeInstance, pods map[string]types.UID) {
		GinkgoHelper()
		Expect(bergtest.PodsByContainer(ctx, i)).To(Equal(pods), "a player's pod was restarted")
		Expect(bergtest.VariablesOf(ctx, i.Status.Namespace, "web")).To(And(HaveKeyWithValue("ADMIN_PASSWORD", "hunter2"), HaveKeyWithValue("COLOUR", "red")))
		Expect(commandOf(ctx, i, "db")).To(Equal([]string{"db", "--password", "hunter2"}))
	}

	It("is not shown by its instances, which run with it, and costs no write after a restart", func(ctx context.Context) {
		_, i, pods := running(ctx)
		Expect(everythingOf(ctx, i)).To(And(Not(ContainSubstring("hunter2")), ContainSubstring("ADMIN_PASSWORD"), ContainSubstring("example.com/db:1")))
		unchanged(ctx, i, pods)
		bergtest.Settle(ctx, i.Namespace)
		inprocess.Pause()
		seen, stop := lookAgain(ctx, nil, clock.RealClock{}, 1)
		DeferCleanup(stop)
		Expect(seen.writes()).To(BeEmpty())
		expect.Shows(ctx, i, bergv1.ConditionUpToDate, metav1.ConditionTrue, bergv1.ReasonUpToDate)
		unchanged(ctx, i, pods)
	})

	It("is named, and not repeated, where it was changed", func(ctx context.Context) {
		c, i, _ := running(ctx)
		bergtest.Respecify(ctx, c, strings.ReplaceAll(secretive, "hunter2", "hunter3"))
		expect.Shows(ctx, i, bergv1.ConditionUpToDate, metav1.ConditionFalse, bergv1.ReasonChallengeChanged)
		expect.Says(ctx, i, "web (environment ADMIN_PASSWORD, readinessProbe), db (livenessProbe, command, args)")
		Expect(everythingOf(ctx, i)).NotTo(ContainSubstring("hunter"))
		bergtest.RollOut(ctx, i, "1")
		expect.Shows(ctx, i, bergv1.ConditionUpToDate, metav1.ConditionTrue, bergv1.ReasonUpToDate)
		Expect(everythingOf(ctx, i)).NotTo(ContainSubstring("hunter"))
		Expect(bergtest.VariablesOf(ctx, i.Status.Namespace, "web")).To(HaveKeyWithValue("ADMIN_PASSWORD", "hunter3"))
	})

	It("is sealed by one write where an earlier version has stored it", func(ctx context.Context) {
		c, i, pods := running(ctx)
		bergtest.Settle(ctx, i.Namespace)
		inprocess.Pause()
		var snapshot map[string]any
		Expect(json.Unmarshal([]byte(snapshotOf(ctx, i)), &snapshot)).To(Succeed())
		snapshot["containers"], snapshot["sealed"] = c.Spec.Containers, nil
		patchSnapshot(ctx, i, snapshot)
		Expect(everythingOf(ctx, i)).To(ContainSubstring("hunter2"), "this proves nothing")

		seen, stop := lookAgain(ctx, nil, clock.RealClock{}, 1)
		DeferCleanup(stop)
		Eventually(everythingOf).WithArguments(ctx, i).ShouldNot(ContainSubstring("hunter2"))
		expect.Shows(ctx, i, bergv1.ConditionUpToDate, metav1.ConditionTrue, bergv1.ReasonUpToDate)
		unchanged(ctx, i, pods)
		Expect(seen.writes()).To(Equal(map[string]int{"PATCH /apis/berg.norelect.ch/v1/namespaces/" + i.Namespace + "/challengeinstances/" + i.Name + "/status": 1}))
	})

	It("does not open in another instance", func(ctx context.Context) {
		_, i, _ := running(ctx)
		c, other, pods := running(ctx)
		inprocess.Pause()
		// Of the other Challenge nothing is left that could tell what the other instance was started with.
		Expect(k8s.Delete(ctx, c)).To(Succeed())
		var snapshot map[string]any
		Expect(json.Unmarshal([]byte(snapshotOf(ctx, i)), &snapshot)).To(Succeed())
		patchSnapshot(ctx, other, snapshot)
		inprocess.Instead(clock.RealClock{}, nil, nil)
		expect.Shows(ctx, other, bergv1.ConditionUpToDate, metav1.ConditionUnknown, bergv1.ReasonValuesLost)
		unchanged(ctx, other, pods)
	})

	It("outlives its key: a Secret that is deleted or emptied comes back", func(ctx context.Context) {
		_, i, pods := running(ctx)
		before := theKey(ctx)
		Expect(before.Data[sealkey.Entry]).To(HaveLen(sealkey.Size))
		Expect(k8s.Delete(ctx, before.DeepCopy())).To(Succeed())
		Eventually(func(g Gomega) {
			now := &corev1.Secret{}
			g.Expect(k8s.Get(ctx, keySecret, now)).To(Succeed())
			g.Expect(now.UID).NotTo(Equal(before.UID))
			g.Expect(now.Data).To(Equal(before.Data))
		}).Should(Succeed())
		writeKey(ctx, []byte("too short"))
		Eventually(func() []byte { return theKey(ctx).Data[sealkey.Entry] }).Should(Equal(before.Data[sealkey.Entry]))
		expect.Shows(ctx, i, bergv1.ConditionUpToDate, metav1.ConditionTrue, bergv1.ReasonUpToDate)
		unchanged(ctx, i, pods)
	})

	It("is sealed again when another key takes the place of the first while the operator runs", func(ctx context.Context) {
		_, i, pods := running(ctx)
		sealed := snapshotOf(ctx, i)
		writeKey(ctx, sealkey.NewKey())
		Eventually(snapshotOf).WithArguments(ctx, i).ShouldNot(Equal(sealed))
		inprocess.Instead(clock.RealClock{}, nil, nil) // it has never seen the first key
		apiserver.Change(ctx, i, func() { i.Spec.Timeout = "3h" })
		expect.Observed(ctx, i)
		expect.Shows(ctx, i, bergv1.ConditionUpToDate, metav1.ConditionTrue, bergv1.ReasonUpToDate)
		unchanged(ctx, i, pods)
	})

	It("comes from the Challenge when its key is lost, and no pod restarts", func(ctx context.Context) {
		_, i, pods := running(ctx)
		inprocess.Pause()
		sealed := snapshotOf(ctx, i)
		Expect(k8s.Delete(ctx, theKey(ctx))).To(Succeed())
		inprocess.Instead(clock.RealClock{}, nil, nil)
		Eventually(snapshotOf).WithArguments(ctx, i).ShouldNot(Equal(sealed))
		expect.Shows(ctx, i, bergv1.ConditionUpToDate, metav1.ConditionTrue, bergv1.ReasonUpToDate)
		Expect(everythingOf(ctx, i)).NotTo(ContainSubstring("hunter2"))
		unchanged(ctx, i, pods)
	})

	It("stays what runs when its key is lost and the Challenge is another one, until a rollout", func(ctx context.Context) {
		c, i, pods := running(ctx)
		inprocess.Pause()
		writeKey(ctx, sealkey.NewKey())
		bergtest.Respecify(ctx, c, strings.ReplaceAll(secretive, "hunter2", "hunter3"))
		inprocess.Instead(clock.RealClock{}, nil, nil)
		expect.Shows(ctx, i, bergv1.ConditionUpToDate, metav1.ConditionFalse, bergv1.ReasonValuesLost)
		expect.Says(ctx, i, sealkey.SecretName)
		expect.Event(ctx, i, corev1.EventTypeWarning, bergv1.ReasonValuesLost)
		expect.Reaches(ctx, i, bergv1.PhaseRunning)
		unchanged(ctx, i, pods)

		By("repairing all else")
		deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: i.Status.Namespace, Name: "web"}}
		Expect(k8s.Patch(ctx, deployment, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":0}}`)))).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(deployment), deployment)).To(Succeed())
			g.Expect(deployment.Spec.Replicas).To(HaveValue(BeEquivalentTo(1)))
		}).Should(Succeed())
		Expect(bergtest.VariablesOf(ctx, i.Status.Namespace, "web")).To(HaveKeyWithValue("ADMIN_PASSWORD", "hunter2"))

		By("rolling out")
		bergtest.RollOut(ctx, i, "1")
		expect.Shows(ctx, i, bergv1.ConditionUpToDate, metav1.ConditionTrue, bergv1.ReasonUpToDate)
		Eventually(bergtest.VariablesOf).WithArguments(ctx, i.Status.Namespace, "web").Should(HaveKeyWithValue("ADMIN_PASSWORD", "hunter3"))
		expect.Reaches(ctx, i, bergv1.PhaseRunning)
	})

	It("stays what runs when its key is lost and its Challenge is gone, until the key is restored", func(ctx context.Context) {
		c, i, pods := running(ctx)
		key := theKey(ctx).Data[sealkey.Entry]
		inprocess.Pause()
		writeKey(ctx, sealkey.NewKey())
		Expect(k8s.Delete(ctx, c)).To(Succeed())
		inprocess.Instead(clock.RealClock{}, nil, nil)
		expect.Shows(ctx, i, bergv1.ConditionUpToDate, metav1.ConditionUnknown, bergv1.ReasonValuesLost)
		Expect(i.Status.Phase).To(Equal(bergv1.PhaseRunning))
		unchanged(ctx, i, pods)

		By("losing a Deployment, which cannot be made again")
		Expect(k8s.Delete(ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: i.Status.Namespace, Name: "db"}})).To(Succeed())
		expect.Shows(ctx, i, bergv1.ConditionDeploymentsCreated, metav1.ConditionFalse, bergv1.ReasonValuesLost)
		Expect(i.Status.Phase).To(Equal(bergv1.PhaseFailed))
		Expect(apiserver.Names(ctx, &appsv1.DeploymentList{}, client.InNamespace(i.Status.Namespace))).To(Equal([]string{"web"}))

		By("restoring the key")
		writeKey(ctx, key)
		expect.Shows(ctx, i, bergv1.ConditionDeploymentsCreated, metav1.ConditionTrue, bergv1.ReasonCreated)
		expect.Reaches(ctx, i, bergv1.PhaseRunning)
		Expect(commandOf(ctx, i, "db")).To(Equal([]string{"db", "--password", "hunter2"}))
		Expect(bergtest.PodsByContainer(ctx, i)).To(HaveKeyWithValue("web", pods["web"]))
	})

	It("is sealed with the key of an operator that ended before it used it", func(ctx context.Context) {
		inprocess.Pause()
		Expect(client.IgnoreNotFound(k8s.Delete(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: keySecret.Namespace, Name: keySecret.Name}}))).To(Succeed())
		ns := bergtest.Namespace(ctx)
		bergtest.Challenge(ctx, ns, "secretive", secretive)
		i := bergtest.Instance(ctx, ns, "secretive")
		kill := transport.NewKill(1, true, func(r *http.Request) bool {
			return strings.HasSuffix(r.URL.Path, "/challengeinstances/"+i.Name+"/status")
		})
		stop := inprocess.Run(nil, kill.Wrap)
		Eventually(kill.Done).Should(BeTrue())
		stop()
		key := theKey(ctx).Data[sealkey.Entry]
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(i), i)).To(Succeed())
		Expect(i.Status.InstanceID).To(BeEmpty(), "the key was used: this proves nothing")
		inprocess.Instead(clock.RealClock{}, nil, nil)
		expect.Reaches(ctx, i, bergv1.PhaseRunning)
		Expect(theKey(ctx).Data[sealkey.Entry]).To(Equal(key))
	})

	It("is sealed with one key by two operators that create it at the same time", func(ctx context.Context) {
		inprocess.Pause()
		Expect(client.IgnoreNotFound(k8s.Delete(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: keySecret.Namespace, Name: keySecret.Name}}))).To(Succeed())
		var both sync.WaitGroup // each creates the Secret only when the other is about to
		both.Add(2)
		rings := make(chan *sealkey.Ring, 2)
		for range 2 {
			rc := rest.CopyConfig(apiserver.Config)
			rc.Impersonate = rest.ImpersonationConfig{UserName: apiserver.OperatorUser}
			rc.Wrap(transport.Showing(func(r *http.Request) {
				if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/secrets") {
					both.Done()
					both.Wait()
				}
			}))
			mgr, err := ctrl.NewManager(rc, ctrl.Options{
				Scheme: k8s.Scheme(), Metrics: server.Options{BindAddress: "0"}, Controller: ctrlconfig.Controller{SkipNameValidation: ptr.To(true)},
			})
			Expect(err).NotTo(HaveOccurred())
			store, err := sealkey.NewStore(mgr, installed.Namespace)
			Expect(err).NotTo(HaveOccurred())
			running, stop := context.WithCancel(ctx)
			DeferCleanup(stop)
			go func() {
				defer GinkgoRecover()
				Expect(mgr.Start(running)).To(Succeed())
			}()
			go func() {
				defer GinkgoRecover()
				<-mgr.Elected()
				ring, err := store.Ring(running)
				Expect(err).NotTo(HaveOccurred())
				rings <- ring
			}()
		}
		var first, second *sealkey.Ring
		Eventually(rings).Should(Receive(&first))
		Eventually(rings).Should(Receive(&second))
		Expect(first.Key()).To(Equal(second.Key()))
		Expect(theKey(ctx).Data[sealkey.Entry]).To(Equal(first.Key()))
	})
})

// everythingOf is an instance as the API server shows it, as JSON.
func everythingOf(ctx context.Context, i *bergv1.ChallengeInstance) string {
	GinkgoHelper()
	object := bergtest.Blank(&bergv1.ChallengeInstance{}, client.ObjectKeyFromObject(i))
	Expect(k8s.Get(ctx, client.ObjectKeyFromObject(i), object)).To(Succeed())
	data, err := json.Marshal(object)
	Expect(err).NotTo(HaveOccurred())
	return string(data)
}

func snapshotOf(ctx context.Context, i *bergv1.ChallengeInstance) string {
	GinkgoHelper()
	Expect(k8s.Get(ctx, client.ObjectKeyFromObject(i), i)).To(Succeed())
	return string(i.Status.ChallengeSnapshot.Raw)
}

// patchSnapshot writes a snapshot in the place of the operator.
func patchSnapshot(ctx context.Context, i *bergv1.ChallengeInstance, snapshot map[string]any) {
	GinkgoHelper()
	data, err := json.Marshal(map[string]any{"status": map[string]any{"challengeSnapshot": snapshot}})
	Expect(err).NotTo(HaveOccurred())
	Expect(k8s.Status().Patch(ctx, i, client.RawPatch(types.MergePatchType, data))).To(Succeed())
}

func theKey(ctx context.Context) *corev1.Secret {
	GinkgoHelper()
	secret := &corev1.Secret{}
	Eventually(func() error { return k8s.Get(ctx, keySecret, secret) }).Should(Succeed())
	return secret
}

func writeKey(ctx context.Context, key []byte) {
	GinkgoHelper()
	secret := theKey(ctx)
	apiserver.Change(ctx, secret, func() { secret.Data = map[string][]byte{sealkey.Entry: key} })
}

func commandOf(ctx context.Context, i *bergv1.ChallengeInstance, container string) []string {
	GinkgoHelper()
	deployment := &appsv1.Deployment{}
	Expect(k8s.Get(ctx, client.ObjectKey{Namespace: i.Status.Namespace, Name: container}, deployment)).To(Succeed())
	return deployment.Spec.Template.Spec.Containers[0].Command
}
