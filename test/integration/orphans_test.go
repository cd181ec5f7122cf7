package integration

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance"
)

var _ = Describe("A finalizer that is removed by hand", func() {
	It("is put back, of an instance that runs, of one that waits and of one that failed", func(ctx context.Context) {
		ns := newNamespace(ctx)
		challenge(ctx, ns, "free", oneContainer)
		runs := instance(ctx, ns, "free")
		reaches(ctx, runs, bergv1.PhaseRunning)
		waiting := instance(ctx, ns, "free", owner(runs))
		waits(ctx, waiting)
		failed := instance(ctx, ns, "none")
		reaches(ctx, failed, bergv1.PhaseFailed)
		for _, i := range []*bergv1.ChallengeInstance{runs, waiting, failed} {
			takeOff(ctx, i)
			isProtected(ctx, i, bergv1.Finalizer)
		}
	})

	It("is put back, of an Environment", func(ctx context.Context) {
		env := newEnvironment(ctx, "e"+uuid.NewString()[:8])
		environmentReaches(ctx, env, quixv1.PhaseReady)
		takeOff(ctx, env)
		isProtected(ctx, env, quixv1.Finalizer)
	})
})

var _ = Describe("A namespace that has outlived its instance", Serial, func() {
	It("is told of, and stays", func(ctx context.Context) {
		ns := newNamespace(ctx)
		challenge(ctx, ns, "left", oneContainer)
		left, resume := orphan(ctx, ns, "left")
		before := bytesOf(ctx, left)
		resume()
		Eventually(orphaned).Should(Equal(1))

		By("telling its owner's next instance what is in the way")
		next := instance(ctx, ns, "left", func(i *bergv1.ChallengeInstance) {
			i.Spec.OwnerID = strings.TrimPrefix(left.Name, challengeinstance.NamespacePrefix)
		})
		shows(ctx, next, bergv1.ConditionNamespaceCreated, metav1.ConditionFalse, bergv1.ReasonNamespaceConflict)
		Expect(conditions(next)).To(And(ContainSubstring(left.Annotations[bergv1.AnnotationInstance]), ContainSubstring("left behind"), ContainSubstring("ORPHAN_GRACE_PERIOD")))
		Consistently(func(g Gomega) { g.Expect(bytesOf(ctx, left)).To(Equal(before)) }).WithTimeout(3 * time.Second).Should(Succeed())

		By("deleting it: the instance goes on")
		Expect(k8s.Delete(ctx, left)).To(Succeed())
		reaches(ctx, next, bergv1.PhaseRunning)
		Eventually(orphaned).Should(BeZero())
	})

	It("is deleted after the grace period, and nothing else is", func(ctx context.Context) {
		ns := newNamespace(ctx)
		challenge(ctx, ns, "left", oneContainer)
		lives := instance(ctx, ns, "left")
		reaches(ctx, lives, bergv1.PhaseRunning)
		var foreign []*corev1.Namespace
		for _, spoil := range []func(*corev1.Namespace){
			func(n *corev1.Namespace) { delete(n.Labels, bergv1.LabelManagedBy) },
			func(n *corev1.Namespace) { delete(n.Labels, bergv1.LabelComponent) },
			func(n *corev1.Namespace) { delete(n.Annotations, bergv1.AnnotationInstanceUID) },
			func(n *corev1.Namespace) { n.Name = "my-" + n.Name },
		} {
			n := lookingOurs(uuid.NewString(), types.UID(uuid.NewString()))
			spoil(n)
			Expect(k8s.Create(ctx, n)).To(Succeed())
			DeferCleanup(func(ctx context.Context) { Expect(client.IgnoreNotFound(k8s.Delete(ctx, n))).To(Succeed()) })
			foreign = append(foreign, n)
		}
		left, _ := orphan(ctx, ns, "left")
		const grace = 5 * time.Second
		began := time.Now()
		restartPaused(ctx, map[string]string{"ORPHAN_GRACE_PERIOD": grace.String()}, nil)
		Eventually(orphaned).Should(Equal(1))
		next := instance(ctx, ns, "left", func(i *bergv1.ChallengeInstance) {
			i.Spec.OwnerID = strings.TrimPrefix(left.Name, challengeinstance.NamespacePrefix)
		})
		reaches(ctx, next, bergv1.PhaseRunning)
		Expect(time.Since(began)).To(BeNumerically(">=", grace))
		Expect(next.Status.StartedAt.Sub(began)).To(BeNumerically(">=", grace-time.Second), "startedAt has no fractions")
		Eventually(orphaned).Should(BeZero())
		for _, n := range append(foreign, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: lives.Status.Namespace}}) {
			Expect(k8s.Get(ctx, client.ObjectKeyFromObject(n), n)).To(Succeed())
			Expect(n.DeletionTimestamp).To(BeNil())
		}
	})

	It("is kept while the API server does not tell which instances there are", func(ctx context.Context) {
		ns := newNamespace(ctx)
		challenge(ctx, ns, "left", oneContainer)
		left, _ := orphan(ctx, ns, "left")
		var refused sync.WaitGroup
		refused.Add(2)
		refusals := 0
		answers := false
		var mu sync.Mutex
		restartPaused(ctx, map[string]string{"ORPHAN_GRACE_PERIOD": "1s"}, func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				mu.Lock()
				defer mu.Unlock()
				asks := r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/challengeinstances") && strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadataList")
				if asks && !answers {
					if refusals++; refusals <= 2 {
						refused.Done()
					}
					return nil, io.ErrUnexpectedEOF
				}
				return next.RoundTrip(r)
			})
		})
		refused.Wait()
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(left), left)).To(Succeed())
		Expect(left.DeletionTimestamp).To(BeNil())
		mu.Lock()
		answers = true
		mu.Unlock()
		Eventually(func() error { return k8s.Get(ctx, client.ObjectKeyFromObject(left), left) }).Should(MatchError(apierrors.IsNotFound, "IsNotFound"))
	})

	It("is kept if it only seems so to an operator whose view of the instances is late", func(ctx context.Context) {
		ns := newNamespace(ctx)
		gate := &late{path: "/challengeinstances", open: make(chan struct{})}
		close(gate.open)
		restartPaused(ctx, map[string]string{"ORPHAN_GRACE_PERIOD": "1s"}, gate.wrap)
		gate.close()
		DeferCleanup(gate.letThrough)
		// As another replica has made it, which led until now.
		i := instance(ctx, ns, "none")
		made := lookingOurs(i.Spec.OwnerID, i.UID)
		Expect(k8s.Create(ctx, made)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(client.IgnoreNotFound(k8s.Delete(ctx, made))).To(Succeed()) })
		Eventually(orphaned).Should(Equal(1))
		Eventually(gate.asked).Should(BeNumerically(">=", 2), "it does not ask the API server")
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(made), made)).To(Succeed())
		Expect(made.DeletionTimestamp).To(BeNil())

		gate.letThrough()
		Eventually(orphaned).Should(BeZero())
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(made), made)).To(Succeed())
		Expect(made.DeletionTimestamp).To(BeNil())
	})
})

// An Environment is cluster-scoped: it owns its namespace in the eyes of Kubernetes too.
var _ = Describe("The namespace of an Environment whose finalizer was removed by hand", Serial, func() {
	It("goes with it", func(ctx context.Context) {
		env := newEnvironment(ctx, "e"+uuid.NewString()[:8])
		environmentReaches(ctx, env, quixv1.PhaseReady)
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: env.Status.NamespaceStatus.ResourceName}}
		resume := pause()
		takeOff(ctx, env)
		Expect(k8s.Delete(ctx, env)).To(Succeed())
		resume()
		Eventually(func() error { return k8s.Get(ctx, client.ObjectKeyFromObject(ns), ns) }).Should(MatchError(apierrors.IsNotFound, "IsNotFound"))
	})
})

// takeOff removes all finalizers of an object.
func takeOff(ctx context.Context, o client.Object) {
	GinkgoHelper()
	Expect(k8s.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
}

func isProtected(ctx context.Context, o client.Object, finalizer string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
		g.Expect(controllerutil.ContainsFinalizer(o, finalizer)).To(BeTrue())
	}).Should(Succeed())
}

// orphan returns the namespace of an instance that was removed while no operator ran. None
// does until resume is called.
func orphan(ctx context.Context, ns, challenge string) (left *corev1.Namespace, resume func()) {
	GinkgoHelper()
	i := instance(ctx, ns, challenge)
	reaches(ctx, i, bergv1.PhaseRunning)
	resume = pause()
	takeOff(ctx, i)
	Expect(k8s.Delete(ctx, i)).To(Succeed())
	disappears(ctx, i)
	left = &corev1.Namespace{}
	Expect(k8s.Get(ctx, client.ObjectKey{Name: i.Status.Namespace}, left)).To(Succeed())
	DeferCleanup(func(ctx context.Context) { Expect(client.IgnoreNotFound(k8s.Delete(ctx, left))).To(Succeed()) })
	return left, resume
}

// restartPaused starts an operator with other settings in place of the paused one.
func restartPaused(_ context.Context, env map[string]string, wrap func(http.RoundTripper) http.RoundTripper) {
	GinkgoHelper()
	all := map[string]string{}
	for _, from := range []map[string]string{environment, env} {
		for name, value := range from {
			all[name] = value
		}
	}
	instead(clock.RealClock{}, load(all), wrap)
}

// lookingOurs is a namespace as the operator makes it for an instance.
func lookingOurs(ownerID string, instance types.UID) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name:        challengeinstance.NamespaceName(ownerID),
		Labels:      map[string]string{bergv1.LabelManagedBy: bergv1.ManagedBy, bergv1.LabelComponent: bergv1.ComponentNamespace},
		Annotations: map[string]string{bergv1.AnnotationInstanceUID: string(instance), bergv1.AnnotationInstance: "somewhere/else"},
	}}
}

// orphaned is the gauge of orphans; -1 when there is none.
func orphaned() int {
	families, err := metrics.Registry.Gather()
	Expect(err).NotTo(HaveOccurred())
	for _, f := range families {
		if f.GetName() == "berg_challengeinstance_orphaned_namespaces" {
			return int(f.GetMetric()[0].GetGauge().GetValue())
		}
	}
	return -1
}

// late holds up what watches of one kind tell, while it is closed.
type late struct {
	path string

	mu    sync.Mutex
	open  chan struct{}
	asks  int
	ended bool
}

func (l *late) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		concerns := strings.HasSuffix(r.URL.Path, l.path)
		watches := concerns && r.URL.Query().Get("watch") != ""
		if concerns && !watches && r.Method == http.MethodGet {
			l.mu.Lock()
			l.asks++
			l.mu.Unlock()
		}
		response, err := next.RoundTrip(r)
		if err == nil && watches {
			response.Body = &lateBody{ReadCloser: response.Body, late: l, ctx: r.Context()}
		}
		return response, err
	})
}

type lateBody struct {
	io.ReadCloser
	late *late
	ctx  context.Context
}

func (b *lateBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.late.mu.Lock()
	open := b.late.open
	b.late.mu.Unlock()
	select {
	case <-open:
		return n, err
	case <-b.ctx.Done():
		return 0, b.ctx.Err()
	}
}

func (l *late) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open, l.asks = make(chan struct{}), 0
}

func (l *late) letThrough() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		l.ended = true
		close(l.open)
	}
}

func (l *late) asked() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.asks
}
