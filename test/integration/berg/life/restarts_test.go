package life

import (
	"context"
	"fmt"
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
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/limits"
)

// Names repeat with the owner, and so do those of an Environment's ID. What is done again
// because a client asks for it is no contest.
var _ = Describe("As often as a client asks for it,", func() {
	It("the instances of one owner start, the last as quickly as the first", func(ctx context.Context) {
		ns := bergtest.Publish(ctx, "again", bergtest.OneContainer)
		contested := expect.Contests(ctx, &bergv1.ChallengeInstanceList{}, client.InNamespace(ns))
		owner := uuid.NewString()
		var took []time.Duration
		for n := range 30 {
			By(fmt.Sprint("start ", n+1))
			i := &bergv1.ChallengeInstance{
				ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "again"},
				Spec:       bergv1.ChallengeInstanceSpec{ChallengeRef: bergv1.ChallengeReference{Name: "again", Namespace: ns}, OwnerID: owner},
			}
			all := bergtest.Versions(ctx, i)
			began := time.Now()
			Expect(k8s.Create(ctx, i)).To(Succeed())
			Eventually(all).Should(Receive(Satisfy(func(e watch.Event) bool {
				now, ok := e.Object.(*bergv1.ChallengeInstance)
				return ok && now.UID == i.UID && now.Status.Phase == bergv1.PhaseRunning
			})), "%s", contested)
			took = append(took, time.Since(began))
			bergtest.Delete(ctx, i)
			Expect(contested()).To(BeEmpty())
		}
		expect.AsQuick(took)
	}, SpecTimeout(limits.Scaled(10*time.Minute)))

	It("an instance adopts its Challenge, the last time as quickly as the first", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
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
		c := bergtest.Challenge(ctx, ns, "again", spec(0))
		i := bergtest.Running(ctx, ns, "again")
		contested := expect.Contests(ctx, &bergv1.ChallengeInstanceList{}, client.InNamespace(ns))
		key := client.ObjectKey{Namespace: i.Status.Namespace, Name: "web"}
		var took []time.Duration
		for n := 1; n <= 30; n++ {
			By(fmt.Sprint("rollout ", n))
			bergtest.Respecify(ctx, c, spec(n))
			w, err := k8s.Watch(ctx, &appsv1.DeploymentList{}, client.InNamespace(key.Namespace))
			Expect(err).NotTo(HaveOccurred())
			began := time.Now()
			bergtest.RollOut(ctx, i, fmt.Sprint(n))
			Eventually(w.ResultChan()).Should(Receive(Satisfy(func(e watch.Event) bool {
				d, ok := e.Object.(*appsv1.Deployment)
				return ok && d.Spec.Template.Spec.Containers[0].Image == fmt.Sprint("example.com/web:", n)
			})), "%s", contested)
			took = append(took, time.Since(began))
			w.Stop()
			expect.Becomes(ctx, i, func(g Gomega) {
				g.Expect(i.Status.Services).To(HaveLen(1 + n%2))
				flag := ContainElement("flag-content")
				if n%2 == 0 {
					flag = Not(flag)
				}
				g.Expect(apiserver.Names(ctx, &corev1.ConfigMapList{}, client.InNamespace(key.Namespace))).To(flag)
			})
			Expect(contested()).To(BeEmpty())
		}
		expect.AsQuick(took)
	}, SpecTimeout(limits.Scaled(10*time.Minute)))
})

var _ = Describe("An object of an instance that another client deletes each time", func() {
	It("comes back with growing pauses, which is reported, and does not slow what comes after", func(ctx context.Context) {
		i := bergtest.StartRunning(ctx, "deleted", bergtest.OneContainer)
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
				if err := client.IgnoreNotFound(k8s.Delete(ctx, bergtest.Blank(&corev1.Service{}, key))); err != nil {
					fought <- err
					return
				}
			}
			fought <- nil
		}()
		expect.Shows(ctx, i, bergv1.ConditionServicesCreated, metav1.ConditionFalse, bergv1.ReasonContested)
		before := deletions.Load()
		Consistently(deletions.Load).WithTimeout(5*time.Second).Should(BeNumerically("<=", before+4), "deletions in five seconds")

		By("starting the next instance of the owner, of the same name, when the fight is over")
		w.Stop()
		Eventually(fought).Should(Receive(BeNil()))
		bergtest.Delete(ctx, i)
		next := bergtest.Instance(ctx, i.Namespace, "deleted", bergtest.OwnedLike(i), func(n *bergv1.ChallengeInstance) { n.GenerateName, n.Name = "", i.Name })
		contested := expect.Contests(ctx, &bergv1.ChallengeInstanceList{}, client.InNamespace(i.Namespace))
		expect.Reaches(ctx, next, bergv1.PhaseRunning)
		Expect(contested()).To(BeEmpty())
	})
})
