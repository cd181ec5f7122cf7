package queue

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/bulk"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/limits"
	"github.com/bergctf/berg-operator/test/lib/transport"
)

// queueTimeout is how long a busy machine may take to start and to end all of them.
var queueTimeout = limits.Scaled(20 * time.Minute)

// make queue has five hundred wait for the room of a hundred.
var _ = Describe("Many instances with room for few", func() {
	It("never are more than that, start in the order of their creation, and cost two writes more each, over kills of the operator", func(ctx context.Context) {
		crowd := bulk.Number("QUEUED", 60)
		room := crowd / 5
		bounded := map[string]string{"CHALLENGE_MAX_INSTANCES": fmt.Sprint(room)}
		ns := bergtest.Namespace(ctx)
		bergtest.NoneLeft(ctx) // those of other specs would take room
		inprocess.Pause()
		bergtest.Challenge(ctx, ns, "crowd", `containers: [{hostname: a, image: "example.com/a:1"}]`)
		instances := apiserver.Changes(ctx, &bergv1.ChallengeInstanceList{}, ns)
		namespaces, err := k8s.Watch(ctx, &corev1.NamespaceList{}, client.MatchingLabels{bergv1.LabelChallengeNamespace: ns})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(namespaces.Stop)
		all := make([]*bergv1.ChallengeInstance, crowd)
		bulk.Each(len(all), func(n int) { all[n] = bergtest.Instance(ctx, ns, "crowd") })

		o := observer{room: room, exist: map[types.UID]*bergv1.ChallengeInstance{}, queued: map[types.UID]int{}, namespaces: map[string]bool{}}
		l := &lifeline{}
		inprocess.Restart(bounded, l.wrap)
		kills := 0
		for o.ended < crowd {
			select {
			case e, open := <-instances:
				Expect(open).To(BeTrue(), "the watch ended")
				i, ok := e.Object.(*bergv1.ChallengeInstance)
				if !ok {
					continue
				}
				if o.sees(e.Type, i) { // it is deleted as soon as it runs
					Expect(client.IgnoreNotFound(k8s.Delete(ctx, i.DeepCopy()))).To(Succeed())
				}
				// After a fifth, two fifths and so on it is killed, wherever it is.
				if o.started > (kills+1)*crowd/5 && kills < 3 {
					kills++
					l.cut()
					inprocess.End()
					l = &lifeline{}
					inprocess.Restart(bounded, l.wrap)
				}
			case e := <-namespaces.ResultChan():
				if n, ok := e.Object.(*corev1.Namespace); ok {
					o.seesNamespace(e.Type, n)
				}
			case <-ctx.Done():
				Fail(fmt.Sprintf("%d of %d have started, %d are gone", o.started, crowd, o.ended))
			}
		}
		Expect(kills).To(Equal(3))
		Expect(o.peak).To(Equal(room), "there was room for more")
		Expect(len(o.queued)).To(BeNumerically(">=", crowd-2*room), "hardly any has waited")
		for uid, times := range o.queued {
			Expect(times).To(BeNumerically("<=", 2), "instance %s was written again and again while it waited", uid)
		}
	}, SpecTimeout(queueTimeout))
})

// observer is told of every version of every instance in the order of their writes, and knows
// nothing of the operator.
type observer struct {
	room  int
	exist map[types.UID]*bergv1.ChallengeInstance
	// queued are the versions of each that waits in the queue.
	queued               map[types.UID]int
	namespaces           map[string]bool
	started, ended, peak int
}

// sees reports whether an instance runs for the first time.
func (o *observer) sees(what watch.EventType, i *bergv1.ChallengeInstance) (runs bool) {
	GinkgoHelper()
	before := o.exist[i.UID]
	if what == watch.Deleted {
		delete(o.exist, i.UID)
		o.ended++
		return false
	}
	if status.Queued(i) {
		o.queued[i.UID]++
		Expect(i.Status.Phase).To(Equal(bergv1.PhasePending))
		Expect(i.Status.StartedAt).To(BeNil(), "its time runs")
	}
	if i.Status.InstanceID != "" && (before == nil || before.Status.InstanceID == "") {
		o.starts(i)
	}
	o.exist[i.UID] = i
	return i.Status.ReadyAt != nil && (before == nil || before.Status.ReadyAt == nil)
}

func (o *observer) starts(i *bergv1.ChallengeInstance) {
	GinkgoHelper()
	o.started++
	holding, older := 0, 0
	for uid, other := range o.exist {
		switch {
		case uid == i.UID:
		case other.Status.InstanceID != "":
			holding++
		case other.DeletionTimestamp == nil && byAge(other, i) < 0:
			older++
		}
	}
	Expect(holding).To(BeNumerically("<", o.room), "%s is one too many", i.Name)
	Expect(holding+older).To(BeNumerically("<", o.room), "%s takes the room of an older one", i.Name)
	Expect(meta.IsStatusConditionTrue(i.Status.Conditions, bergv1.ConditionAdmitted)).To(BeTrue(), "it starts and is not admitted")
	o.peak = max(o.peak, holding+1)
}

func (o *observer) seesNamespace(what watch.EventType, n *corev1.Namespace) {
	GinkgoHelper()
	if what == watch.Deleted {
		delete(o.namespaces, n.Name)
	} else {
		o.namespaces[n.Name] = true
	}
	Expect(len(o.namespaces)).To(BeNumerically("<=", o.room), "there are more namespaces than may be")
}

// lifeline is all that connects an operator with the API server. An operator whose line is cut
// is as good as killed: nothing that it does has an effect any more, and it does not hear what
// became of what it has sent.
type lifeline struct{ isCut atomic.Bool }

func (l *lifeline) cut() { l.isCut.Store(true) }

func (l *lifeline) wrap(next http.RoundTripper) http.RoundTripper {
	killed := errors.New("killed")
	return transport.Through(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		if l.isCut.Load() {
			return nil, killed
		}
		response, err := next.RoundTrip(r)
		if err == nil && l.isCut.Load() {
			_ = response.Body.Close()
			return nil, killed
		}
		return response, err
	})(next)
}

var _ = Describe("The queue of instances", func() {
	var ns string
	limited := func(ctx context.Context, settings map[string]string) {
		ns = bergtest.Namespace(ctx)
		bergtest.NoneLeft(ctx)
		inprocess.Restart(settings, nil)
	}
	begin := func(ctx context.Context, limit int) {
		limited(ctx, map[string]string{"CHALLENGE_MAX_INSTANCES": fmt.Sprint(limit)})
	}
	of := func(source string) func(*bergv1.ChallengeInstance) {
		return func(i *bergv1.ChallengeInstance) { i.Labels = map[string]string{bergv1.LabelSource: source} }
	}
	waits := func(ctx context.Context, i *bergv1.ChallengeInstance, what string) {
		GinkgoHelper()
		expect.Shows(ctx, i, bergv1.ConditionAdmitted, metav1.ConditionFalse, bergv1.ReasonQueued)
		Expect(i.Status.Phase).To(Equal(bergv1.PhasePending))
		expect.Says(ctx, i, what)
		Expect(i.Status.InstanceID).To(BeEmpty())
		Expect(i.Status.ExpiresAt).To(BeNil())
		Expect(bergtest.NamespaceExists(ctx, i)).To(BeFalse(), "something of it is built")
	}

	It("is left immediately by an instance that is deleted or terminated, and continues when one is gone with its namespace", func(ctx context.Context) {
		begin(ctx, 1)
		Eventually(func() float64 { return inprocess.Metric("berg_challengeinstance_free_capacity") }).Should(BeEquivalentTo(1))
		bergtest.Challenge(ctx, ns, "full", bergtest.OneContainer)
		first := bergtest.Running(ctx, ns, "full")
		deleted, asked, next := bergtest.Instance(ctx, ns, "full"), bergtest.Instance(ctx, ns, "full"), bergtest.Instance(ctx, ns, "full")
		for _, i := range []*bergv1.ChallengeInstance{deleted, asked, next} {
			waits(ctx, i, "CHALLENGE_MAX_INSTANCES")
		}
		Eventually(func() float64 { return inprocess.Metric("berg_challengeinstance_queue_length") }).Should(BeEquivalentTo(3))
		Expect(inprocess.Metric("berg_challengeinstance_queue_head_seconds")).To(BeNumerically(">", 0))
		Expect(inprocess.Metric("berg_challengeinstance_free_capacity")).To(BeEquivalentTo(0))

		bergtest.Delete(ctx, deleted)
		apiserver.Change(ctx, asked, func() { asked.Spec.TerminationReason = bergv1.TerminationAdmin })
		bergtest.Gone(ctx, asked)
		waits(ctx, next, "CHALLENGE_MAX_INSTANCES")

		By("holding the namespace of the one that ends: it counts")
		release := bergtest.Hold(ctx, first.Status.Namespace)
		Expect(k8s.Delete(ctx, first)).To(Succeed())
		expect.Shows(ctx, first, bergv1.ConditionNamespaceDeleted, metav1.ConditionFalse, bergv1.ReasonDeletionBlocked)
		waits(ctx, next, "CHALLENGE_MAX_INSTANCES")
		version := next.ResourceVersion
		Consistently(func(g Gomega) {
			g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(next), next)).To(Succeed())
			g.Expect(next.ResourceVersion).To(Equal(version), "it is written while it waits")
		}).WithContext(ctx).WithTimeout(2 * time.Second).Should(Succeed())
		release()
		expect.Reaches(ctx, next, bergv1.PhaseRunning)
		Expect(next.Status.StartedAt.Time).To(BeTemporally(">=", next.CreationTimestamp.Time))
		Expect(next.Status.ExpiresAt.Sub(next.Status.StartedAt.Time)).To(Equal(2*time.Hour), "the time in the queue counts")
		expect.Shows(ctx, next, bergv1.ConditionAdmitted, metav1.ConditionTrue, bergv1.ReasonAdmitted)
	})

	It("continues when a limit is raised, and ends no instance when it is lowered", func(ctx context.Context) {
		begin(ctx, 1)
		bergtest.Challenge(ctx, ns, "grows", bergtest.OneContainer)
		first := bergtest.Running(ctx, ns, "grows")
		second := bergtest.Instance(ctx, ns, "grows")
		waits(ctx, second, "CHALLENGE_MAX_INSTANCES")
		inprocess.Restart(map[string]string{"CHALLENGE_MAX_INSTANCES": "2"}, nil)
		expect.Reaches(ctx, second, bergv1.PhaseRunning)
		inprocess.Restart(map[string]string{"CHALLENGE_MAX_INSTANCES": "1"}, nil)
		third := bergtest.Instance(ctx, ns, "grows")
		waits(ctx, third, "CHALLENGE_MAX_INSTANCES")
		for _, i := range []*bergv1.ChallengeInstance{first, second} {
			Expect(k8s.Get(ctx, client.ObjectKeyFromObject(i), i)).To(Succeed())
			Expect(i.Status.Phase).To(Equal(bergv1.PhaseRunning))
		}
		bergtest.Delete(ctx, first)
		waits(ctx, third, "CHALLENGE_MAX_INSTANCES")
		inprocess.Restart(map[string]string{"CHALLENGE_MAX_INSTANCES": "0"}, nil)
		expect.Reaches(ctx, third, bergv1.PhaseRunning)
	})

	It("of a Challenge delays no other, and both limits hold", func(ctx context.Context) {
		begin(ctx, 3)
		scarce := bergtest.Challenge(ctx, ns, "scarce", "maxInstances: 1\n"+bergtest.OneContainer)
		bergtest.Challenge(ctx, ns, "plenty", bergtest.OneContainer)
		bergtest.Running(ctx, ns, "scarce")
		waiting := bergtest.Instance(ctx, ns, "scarce")
		waits(ctx, waiting, "spec.maxInstances of Challenge "+ns+"/scarce")
		others := bergtest.Several(ctx, ns, "plenty", 2)
		bergtest.AllRun(ctx, others...)
		aSecondAfter(waiting)
		third := bergtest.Instance(ctx, ns, "plenty")
		waits(ctx, third, "CHALLENGE_MAX_INSTANCES")

		By("raising the limit of the Challenge while the other one is reached")
		bergtest.Respecify(ctx, scarce, "maxInstances: 2\n"+bergtest.OneContainer)
		waits(ctx, waiting, "CHALLENGE_MAX_INSTANCES")
		Expect(k8s.Delete(ctx, others[0])).To(Succeed())
		bergtest.Gone(ctx, others[0])
		expect.Reaches(ctx, waiting, bergv1.PhaseRunning)
		waits(ctx, third, "CHALLENGE_MAX_INSTANCES")
	})

	It("delays no instance because of one that cannot be built, which keeps its place", func(ctx context.Context) {
		begin(ctx, 1)
		bergtest.Challenge(ctx, ns, "there", bergtest.OneContainer)
		first := bergtest.Instance(ctx, ns, "late")
		expect.Shows(ctx, first, bergv1.ConditionChallengeFound, metav1.ConditionFalse, bergv1.ReasonChallengeMissing)
		second := bergtest.Running(ctx, ns, "there")
		aSecondAfter(first)
		third := bergtest.Instance(ctx, ns, "there")
		waits(ctx, third, "CHALLENGE_MAX_INSTANCES")
		bergtest.Challenge(ctx, ns, "late", bergtest.OneContainer)
		waits(ctx, first, "CHALLENGE_MAX_INSTANCES")
		Expect(k8s.Delete(ctx, second)).To(Succeed())
		expect.Reaches(ctx, first, bergv1.PhaseRunning)
		waits(ctx, third, "CHALLENGE_MAX_INSTANCES")
	})

	It("counts the instances of a source, and labels what belongs to them", func(ctx context.Context) {
		limited(ctx, map[string]string{"SOURCE_MAX_INSTANCES": "1"})
		bergtest.Challenge(ctx, ns, "single", bergtest.OneContainer)
		first := bergtest.Running(ctx, ns, "single", of("team-1"))
		second := bergtest.Instance(ctx, ns, "single", of("team-1"))
		waits(ctx, second, "SOURCE_MAX_INSTANCES (1) for source team-1")
		for _, other := range []*bergv1.ChallengeInstance{bergtest.Instance(ctx, ns, "single", of("team-2")), bergtest.Instance(ctx, ns, "single")} {
			expect.Reaches(ctx, other, bergv1.PhaseRunning)
		}
		var namespace corev1.Namespace
		Expect(k8s.Get(ctx, client.ObjectKey{Name: first.Status.Namespace}, &namespace)).To(Succeed())
		Expect(namespace.Labels).To(HaveKeyWithValue(bergv1.LabelSource, "team-1"))
		pods := apiserver.List[corev1.PodList](ctx, client.InNamespace(namespace.Name), client.MatchingLabels{bergv1.LabelSource: "team-1"})
		Expect(pods.Items).To(HaveLen(1))

		By("another operator: the limit holds")
		inprocess.Restart(map[string]string{"SOURCE_MAX_INSTANCES": "1"}, nil)
		third := bergtest.Instance(ctx, ns, "single", of("team-1"))
		waits(ctx, third, "SOURCE_MAX_INSTANCES")
		Expect(k8s.Delete(ctx, first)).To(Succeed())
		expect.Reaches(ctx, slices.MinFunc([]*bergv1.ChallengeInstance{second, third}, byAge), bergv1.PhaseRunning)
	})

	It("adds up what the instances of a source cost", func(ctx context.Context) {
		limited(ctx, map[string]string{"SOURCE_BUDGET": "3"})
		bergtest.Challenge(ctx, ns, "cheap", bergtest.OneContainer)
		dear := bergtest.Challenge(ctx, ns, "dear", "cost: 2\n"+bergtest.OneContainer)
		bergtest.Challenge(ctx, ns, "free", "cost: 0\n"+bergtest.OneContainer)
		bergtest.Running(ctx, ns, "dear", of("alice"))
		second := bergtest.Instance(ctx, ns, "dear", of("alice"))
		waits(ctx, second, "SOURCE_BUDGET (3) for source alice")
		aSecondAfter(second)
		younger := bergtest.Instance(ctx, ns, "cheap", of("alice"))
		waits(ctx, younger, "SOURCE_BUDGET")
		for _, other := range []*bergv1.ChallengeInstance{bergtest.Instance(ctx, ns, "free", of("alice")), bergtest.Instance(ctx, ns, "dear", of("bob"))} {
			expect.Reaches(ctx, other, bergv1.PhaseRunning)
		}

		By("an edit of the price")
		bergtest.Respecify(ctx, dear, "cost: 4\n"+bergtest.OneContainer)
		waits(ctx, second, "spec.cost of Challenge "+ns+"/dear")
		waits(ctx, younger, "SOURCE_BUDGET (3)")
		bergtest.Respecify(ctx, dear, "cost: 1\n"+bergtest.OneContainer)
		expect.Reaches(ctx, second, bergv1.PhaseRunning)
		expect.Reaches(ctx, younger, bergv1.PhaseRunning)
	})

	It("counts the instances of a namespace", func(ctx context.Context) {
		limited(ctx, map[string]string{"CHALLENGE_NAMESPACE_MAX_INSTANCES": "1"})
		elsewhere := bergtest.Namespace(ctx)
		for _, place := range []string{ns, elsewhere} {
			bergtest.Challenge(ctx, place, "local", bergtest.OneContainer)
			expect.Reaches(ctx, bergtest.Instance(ctx, place, "local"), bergv1.PhaseRunning)
		}
		second := bergtest.Instance(ctx, ns, "local")
		waits(ctx, second, "CHALLENGE_NAMESPACE_MAX_INSTANCES (1) for namespace "+ns)
	})

	It("has no condition without a limit", func(ctx context.Context) {
		i := bergtest.StartRunning(ctx, "unbounded", bergtest.OneContainer)
		Expect(meta.FindStatusCondition(i.Status.Conditions, bergv1.ConditionAdmitted)).To(BeNil())
	})
})

// aSecondAfter waits until another instance is younger: of those that were created in the same second
// the UID decides who goes first.
func aSecondAfter(i *bergv1.ChallengeInstance) {
	GinkgoHelper()
	Eventually(func() time.Time { return time.Now().Truncate(time.Second) }).Should(BeTemporally(">", i.CreationTimestamp.Time))
}
