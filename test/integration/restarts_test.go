package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
)

// Names repeat with the owner, and so do those of an Environment's ID. What is done again
// because somebody asks for it is no fight.
var _ = Describe("As often as somebody asks for it,", func() {
	It("the instances of one owner start, the last as quickly as the first", func(ctx context.Context) {
		ns := newNamespace(ctx)
		challenge(ctx, ns, "again", oneContainer)
		contested := contests(ctx, &bergv1.ChallengeInstanceList{}, client.InNamespace(ns))
		owner := uuid.NewString()
		var took []time.Duration
		for n := range 30 {
			By(fmt.Sprint("start ", n+1))
			i := &bergv1.ChallengeInstance{
				ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "again"},
				Spec:       bergv1.ChallengeInstanceSpec{ChallengeRef: bergv1.ChallengeReference{Name: "again", Namespace: ns}, OwnerID: owner},
			}
			all := versions(ctx, i)
			began := time.Now()
			Expect(k8s.Create(ctx, i)).To(Succeed())
			Eventually(all).Should(Receive(Satisfy(func(e watch.Event) bool {
				now, ok := e.Object.(*bergv1.ChallengeInstance)
				return ok && now.UID == i.UID && now.Status.Phase == bergv1.PhaseRunning
			})), "%s", contested)
			took = append(took, time.Since(began))
			Expect(k8s.Delete(ctx, i)).To(Succeed())
			gone(ctx, i)
			Expect(contested()).To(BeEmpty())
		}
		asQuick(took)
	}, SpecTimeout(10*time.Minute))

	It("an instance adopts its Challenge, the last time as quickly as the first", func(ctx context.Context) {
		ns := newNamespace(ctx)
		// What one has and the next does not comes and goes with each rollout.
		spec := func(n int) string {
			text := fmt.Sprintf(`containers: [{hostname: web, image: "example.com/web:%d", ports: [{name: web, port: 8080, type: publicHttpRoute}`, n)
			if n%2 == 1 {
				text += `, {name: chat, port: 7000, type: publicTlsRoute}], additionalCapabilities: [NET_ADMIN], dynamicFlag: {content: {path: /flag}}`
			} else {
				text += `]`
			}
			return text + `}]`
		}
		c := challenge(ctx, ns, "again", spec(0))
		i := instance(ctx, ns, "again")
		reaches(ctx, i, bergv1.PhaseRunning)
		contested := contests(ctx, &bergv1.ChallengeInstanceList{}, client.InNamespace(ns))
		key := client.ObjectKey{Namespace: i.Status.Namespace, Name: "web"}
		var took []time.Duration
		for n := 1; n <= 30; n++ {
			By(fmt.Sprint("rollout ", n))
			respecify(ctx, c, spec(n))
			w, err := k8s.Watch(ctx, &appsv1.DeploymentList{}, client.InNamespace(key.Namespace))
			Expect(err).NotTo(HaveOccurred())
			began := time.Now()
			rollOut(ctx, i, fmt.Sprint(n))
			Eventually(w.ResultChan()).Should(Receive(Satisfy(func(e watch.Event) bool {
				d, ok := e.Object.(*appsv1.Deployment)
				return ok && d.Spec.Template.Spec.Containers[0].Image == fmt.Sprint("example.com/web:", n)
			})), "%s", contested)
			took = append(took, time.Since(began))
			w.Stop()
			Eventually(func(g Gomega) {
				g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(i), i)).To(Succeed())
				g.Expect(i.Status.Services).To(HaveLen(1 + n%2))
				flag := ContainElement("flag-content")
				if n%2 == 0 {
					flag = Not(flag)
				}
				g.Expect(names(ctx, &corev1.ConfigMapList{}, client.InNamespace(key.Namespace))).To(flag)
			}).Should(Succeed())
			Expect(contested()).To(BeEmpty())
		}
		asQuick(took)
	}, SpecTimeout(10*time.Minute))

	It("an Environment of one ID and name comes and goes, the last as quickly as the first", func(ctx context.Context) {
		id := newID()
		contested := contests(ctx, &quixv1.EnvironmentList{}, client.MatchingFields{"metadata.name": id})
		var took []time.Duration
		for n := range 15 {
			By(fmt.Sprint("Environment ", n+1))
			env := &quixv1.Environment{ObjectMeta: metav1.ObjectMeta{Name: id}, Spec: quixv1.EnvironmentSpec{ID: id}}
			w, err := k8s.Watch(ctx, &quixv1.EnvironmentList{}, client.MatchingFields{"metadata.name": id})
			Expect(err).NotTo(HaveOccurred())
			began := time.Now()
			Expect(k8s.Create(ctx, env)).To(Succeed())
			if n == 0 {
				DeferCleanup(func(ctx context.Context) {
					last := &quixv1.Environment{ObjectMeta: metav1.ObjectMeta{Name: id}}
					Expect(client.IgnoreNotFound(k8s.Delete(ctx, last))).To(Succeed())
				})
			}
			Eventually(w.ResultChan()).Should(Receive(Satisfy(func(e watch.Event) bool {
				now, ok := e.Object.(*quixv1.Environment)
				return ok && now.UID == env.UID && now.Status.Phase == quixv1.PhaseReady
			})), "%s", contested)
			took = append(took, time.Since(began))
			w.Stop()
			Expect(k8s.Delete(ctx, env)).To(Succeed())
			environmentGone(ctx, env)
			Expect(contested()).To(BeEmpty())
		}
		asQuick(took)
	}, SpecTimeout(10*time.Minute))
})

var _ = Describe("An object of an instance that somebody deletes each time", func() {
	It("comes back with growing pauses, which is told, and does not slow what comes after", func(ctx context.Context) {
		i := running(ctx, "deleted", oneContainer)
		key := client.ObjectKey{Namespace: i.Status.Namespace, Name: "web"}
		w, err := k8s.Watch(ctx, &corev1.ServiceList{}, client.InNamespace(key.Namespace), client.MatchingFields{"metadata.name": key.Name})
		Expect(err).NotTo(HaveOccurred())
		var deletions atomic.Int64
		fought := make(chan error, 1)
		go func() { // deletes it as fast as it is told of it
			for e := range w.ResultChan() {
				if e.Type != watch.Added {
					continue
				}
				deletions.Add(1)
				if err := client.IgnoreNotFound(k8s.Delete(ctx, blank(&corev1.Service{}, key))); err != nil {
					fought <- err
					return
				}
			}
			fought <- nil
		}()
		shows(ctx, i, bergv1.ConditionServicesCreated, metav1.ConditionFalse, bergv1.ReasonContested)
		before := deletions.Load()
		Consistently(deletions.Load).WithTimeout(5*time.Second).Should(BeNumerically("<=", before+4), "deletions in five seconds")

		By("starting the next instance of the owner, of the same name, when the fight is over")
		w.Stop()
		Eventually(fought).Should(Receive(BeNil()))
		Expect(k8s.Delete(ctx, i)).To(Succeed())
		gone(ctx, i)
		next := instance(ctx, i.Namespace, "deleted", owner(i), func(n *bergv1.ChallengeInstance) { n.GenerateName, n.Name = "", i.Name })
		contested := contests(ctx, &bergv1.ChallengeInstanceList{}, client.InNamespace(i.Namespace))
		reaches(ctx, next, bergv1.PhaseRunning)
		Expect(contested()).To(BeEmpty())
	})
})

// contests returns what has been told, since its call, of things that somebody fights over.
func contests(ctx context.Context, list client.ObjectList, opts ...client.ListOption) func() []string {
	GinkgoHelper()
	w, err := k8s.Watch(ctx, list, opts...)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(w.Stop)
	var mu sync.Mutex
	var found []string
	go func() {
		for e := range w.ResultChan() {
			var all []metav1.Condition
			switch o := e.Object.(type) {
			case *bergv1.ChallengeInstance:
				all = o.Status.Conditions
			case *quixv1.Environment:
				all = o.Status.Conditions
			}
			for _, c := range all {
				// The same reason in both families.
				if c.Reason == bergv1.ReasonContested {
					mu.Lock()
					found = append(found, strings.Join([]string{c.Type, c.Reason, c.Message}, " "))
					mu.Unlock()
				}
			}
		}
	}()
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(found)
	}
}

// asQuick checks that the last five of many took no longer than the first five. What it
// allows is for a busy machine; a pause begins with a second, and doubles.
func asQuick(took []time.Duration) {
	GinkgoHelper()
	first, last := median(took[:5]), median(took[len(took)-5:])
	AddReportEntry("times", fmt.Sprintf("median of the first five %s, of the last five %s", first.Round(time.Millisecond), last.Round(time.Millisecond)))
	Expect(last).To(BeNumerically("<=", 3*first+500*time.Millisecond), "all: %v", took)
}
