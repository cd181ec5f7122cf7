package queue

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/berg/revisions"
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
		Expect(readCommand(ctx, i, "db")).To(Equal([]string{"db", "--password", "hunter2"}))
	}

	It("is not shown by its instances, which share one Secret, and costs no write after a restart", func(ctx context.Context) {
		_, i, pods := running(ctx)
		Expect(readEverything(ctx, i)).To(And(Not(ContainSubstring("hunter2")), Not(ContainSubstring("ADMIN_PASSWORD"))))
		other := bergtest.Instance(ctx, i.Namespace, "secretive")
		expect.Reaches(ctx, other, bergv1.PhaseRunning)
		Expect(other.Status.ChallengeRevision).To(Equal(i.Status.ChallengeRevision))
		secret := findRevision(ctx, i)
		Expect(secret.Immutable).To(HaveValue(BeTrue()))
		Expect(string(secret.Data["content"])).To(ContainSubstring("hunter2"), "this proves nothing")
		unchanged(ctx, i, pods)

		bergtest.Settle(ctx, i.Namespace)
		inprocess.Pause()
		seen, stop := lookAgain(ctx, nil, clock.RealClock{}, 1)
		DeferCleanup(stop)
		Expect(seen.writes()).To(BeEmpty())
		expect.Shows(ctx, i, bergv1.ConditionUpToDate, metav1.ConditionTrue, bergv1.ReasonUpToDate)
		unchanged(ctx, i, pods)

		By("starting another one, with the Secret that the operator before has written")
		later := bergtest.Instance(ctx, i.Namespace, "secretive")
		expect.Reaches(ctx, later, bergv1.PhaseRunning)
		Expect(later.Status.ChallengeRevision).To(Equal(i.Status.ChallengeRevision))
	})

	It("is named, and not repeated, where it was changed", func(ctx context.Context) {
		c, i, _ := running(ctx)
		before := i.Status.ChallengeRevision
		bergtest.Respecify(ctx, c, strings.ReplaceAll(secretive, "hunter2", "hunter3"))
		expect.Shows(ctx, i, bergv1.ConditionUpToDate, metav1.ConditionFalse, bergv1.ReasonChallengeChanged)
		Expect(i.Status.PendingChanges.Containers).To(Equal([]bergv1.ContainerChange{
			{Name: "web", Effect: bergv1.EffectRestarts, Fields: []string{"environment ADMIN_PASSWORD", "readinessProbe"}},
			{Name: "db", Effect: bergv1.EffectRestarts, Fields: []string{"args", "command", "livenessProbe"}},
		}))
		Expect(readEverything(ctx, i)).NotTo(ContainSubstring("hunter"))
		bergtest.RollOut(ctx, i, "1")
		expect.Shows(ctx, i, bergv1.ConditionUpToDate, metav1.ConditionTrue, bergv1.ReasonUpToDate)
		Expect(readEverything(ctx, i)).NotTo(ContainSubstring("hunter"))
		Expect(i.Status.PendingChanges).To(BeNil())
		Expect(i.Status.ChallengeRevision).NotTo(Equal(before))
		Eventually(bergtest.VariablesOf).WithArguments(ctx, i.Status.Namespace, "web").Should(HaveKeyWithValue("ADMIN_PASSWORD", "hunter3"))
	})

	It("leaves the pods as they are while it cannot be read, until a rollout", func(ctx context.Context) {
		_, i, pods := running(ctx)
		inprocess.Pause()
		secret := findRevision(ctx, i)
		Expect(k8s.Delete(ctx, secret)).To(Succeed())
		inprocess.Instead(clock.RealClock{}, nil, nil)
		expect.Shows(ctx, i, bergv1.ConditionChallengeFound, metav1.ConditionFalse, bergv1.ReasonRevisionMissing)
		expect.Says(ctx, i, secret.Name)
		expect.Event(ctx, i, corev1.EventTypeWarning, bergv1.ReasonRevisionMissing)
		Expect(i.Status.Phase).To(Equal(bergv1.PhaseRunning))
		unchanged(ctx, i, pods)

		By("writing another content under its name, which is not trusted")
		forged := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: secret.Namespace, Name: secret.Name, Labels: secret.Labels}, Type: secret.Type, Immutable: secret.Immutable,
			Data: map[string][]byte{"salt": secret.Data["salt"], "content": []byte(strings.ReplaceAll(string(secret.Data["content"]), "example.com/web", "attacker.example/web"))},
		}
		Expect(k8s.Create(ctx, forged)).To(Succeed())
		expect.Says(ctx, i, "another client wrote it")
		unchanged(ctx, i, pods)

		By("rolling out: the Challenge is the same, so no pod restarts")
		bergtest.RollOut(ctx, i, "1")
		expect.Shows(ctx, i, bergv1.ConditionChallengeFound, metav1.ConditionTrue, bergv1.ReasonFound)
		expect.Shows(ctx, i, bergv1.ConditionUpToDate, metav1.ConditionTrue, bergv1.ReasonUpToDate)
		Expect(i.Status.ChallengeRevision).NotTo(Equal(secret.Name))
		unchanged(ctx, i, pods)
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(forged), forged)).To(Succeed(), "a foreign Secret was deleted")
	})

	It("is stored before a status names it, wherever the operator ends", func(ctx context.Context) {
		inprocess.Pause()
		ns := bergtest.Namespace(ctx)
		bergtest.Challenge(ctx, ns, "secretive", secretive+"allowOutboundTraffic: true")
		i := bergtest.Instance(ctx, ns, "secretive")
		kill := transport.NewKill(1, true, func(r *http.Request) bool {
			return strings.HasSuffix(r.URL.Path, "/challengeinstances/"+i.Name+"/status")
		})
		stop := inprocess.Run(nil, kill.Wrap)
		Eventually(kill.Done).Should(BeTrue())
		stop()
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(i), i)).To(Succeed())
		Expect(i.Status.ChallengeRevision).To(BeEmpty(), "the status was written: this proves nothing")
		inprocess.Instead(clock.RealClock{}, nil, nil)
		expect.Reaches(ctx, i, bergv1.PhaseRunning)
		Expect(findRevision(ctx, i).Annotations).To(HaveKey("berg.norelect.ch/claimed-by"), "the Secret of the first operator is not used")
	})

	It("goes when no instance names it, and stays while one does", func(ctx context.Context) {
		_, i, pods := running(ctx)
		now := clocktesting.NewFakeClock(time.Now())
		store := revisions.NewStore[manifests.Snapshot](apiserver.Client, apiserver.Client, now, installed.Namespace)
		names := func(ctx context.Context) (sets.Set[string], error) {
			var all bergv1.ChallengeInstanceList
			err := k8s.List(ctx, &all)
			named := sets.New[string]()
			for _, each := range all.Items {
				named.Insert(each.Status.ChallengeRevision)
			}
			return named, err
		}
		none := func(context.Context) (sets.Set[string], error) { return sets.New[string](), nil }
		unused, err := store.Ensure(ctx, manifests.Snapshot{Containers: []bergv1.Container{{Hostname: "unused", Image: i.Name}}})
		Expect(err).NotTo(HaveOccurred())
		key := client.ObjectKey{Namespace: installed.Namespace, Name: unused}
		Expect(store.Sweep(ctx, names, names)).To(Succeed())
		Expect(k8s.Get(ctx, key, &corev1.Secret{})).To(Succeed(), "a status may be about to name it")
		now.Step(time.Hour)
		Expect(store.Sweep(ctx, none, names)).To(Succeed())
		Expect(client.IgnoreNotFound(k8s.Get(ctx, key, &corev1.Secret{}))).To(Succeed())
		Expect(k8s.Get(ctx, key, &corev1.Secret{})).NotTo(Succeed())
		findRevision(ctx, i)
		unchanged(ctx, i, pods)
	})
})

var _ = Describe("Where no Secret can be stored", func() {
	It("instances do not start or adopt their Challenge, say why, and do both when it can be", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		c := bergtest.Challenge(ctx, ns, "refused", secretive)
		live := bergtest.Instance(ctx, ns, "refused")
		expect.Reaches(ctx, live, bergv1.PhaseRunning)
		pods := bergtest.PodsByContainer(ctx, live)
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: installed.Namespace, Name: "refused"}}
		lift := apiserver.Deny(ctx, apiserver.Denial{
			Name: "refused-revisions", Resources: []string{"secrets"}, Operation: "CREATE",
			Labels: map[string]string{corev1.LabelMetadataName: installed.Namespace},
		}, func() error { return k8s.Create(ctx, secret.DeepCopy(), client.DryRunAll) })
		bergtest.Respecify(ctx, c, strings.ReplaceAll(secretive, "hunter2", "hunter4"))

		By("a start")
		waiting := bergtest.Instance(ctx, ns, "refused")
		expect.Shows(ctx, waiting, bergv1.ConditionNamespaceCreated, metav1.ConditionFalse, bergv1.ReasonRefused)
		expect.Says(ctx, waiting, apiserver.Refusal)
		expect.Event(ctx, waiting, corev1.EventTypeWarning, bergv1.ReasonRefused)
		Expect(waiting.Status.Phase).To(Equal(bergv1.PhasePending))
		Expect(waiting.Status.StartedAt).To(BeNil())

		By("a rollout, before which the pods are repaired as ever")
		bergtest.RollOut(ctx, live, "1")
		expect.Shows(ctx, live, bergv1.ConditionChallengeFound, metav1.ConditionFalse, bergv1.ReasonRefused)
		Expect(live.Status.Phase).To(Equal(bergv1.PhaseRunning))
		Expect(bergtest.PodsByContainer(ctx, live)).To(Equal(pods), "a player's pod was restarted")
		Expect(k8s.Delete(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: live.Status.Namespace, Name: "web"}})).To(Succeed())
		Eventually(func() error {
			return k8s.Get(ctx, client.ObjectKey{Namespace: live.Status.Namespace, Name: "web"}, &corev1.Service{})
		}).Should(Succeed())

		lift()
		expect.Reaches(ctx, waiting, bergv1.PhaseRunning)
		expect.Shows(ctx, live, bergv1.ConditionUpToDate, metav1.ConditionTrue, bergv1.ReasonUpToDate)
		expect.Shows(ctx, live, bergv1.ConditionChallengeFound, metav1.ConditionTrue, bergv1.ReasonFound)
	})
})

// findRevision returns the Secret that the status of an instance names.
func findRevision(ctx context.Context, i *bergv1.ChallengeInstance) *corev1.Secret {
	GinkgoHelper()
	secret := &corev1.Secret{}
	Expect(k8s.Get(ctx, client.ObjectKey{Namespace: installed.Namespace, Name: i.Status.ChallengeRevision}, secret)).To(Succeed())
	return secret
}

// readEverything is an instance as the API server shows it, as JSON.
func readEverything(ctx context.Context, i *bergv1.ChallengeInstance) string {
	GinkgoHelper()
	object := bergtest.Blank(&bergv1.ChallengeInstance{}, client.ObjectKeyFromObject(i))
	Expect(k8s.Get(ctx, client.ObjectKeyFromObject(i), object)).To(Succeed())
	data, err := json.Marshal(object)
	Expect(err).NotTo(HaveOccurred())
	return string(data)
}

func readCommand(ctx context.Context, i *bergv1.ChallengeInstance, container string) []string {
	GinkgoHelper()
	deployment := &appsv1.Deployment{}
	Expect(k8s.Get(ctx, client.ObjectKey{Namespace: i.Status.Namespace, Name: container}, deployment)).To(Succeed())
	return deployment.Spec.Template.Spec.Containers[0].Command
}
