package hexactf

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bulk"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/hexactftest"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
)

// crowd is how many challenges are created concurrently.
func crowd() int { return bulk.Number("HEXACTF_CROWD", 20) }

// target reports a figure and its target. The target must be met only if HEXACTF_TARGETS is 1, which make sets on a
// machine without other load.
func target(figure float64, what, comparator string, limit float64) {
	GinkgoHelper()
	AddReportEntry(what, fmt.Sprintf("%.2f, target %s %.2f", figure, comparator, limit))
	if os.Getenv("HEXACTF_TARGETS") == "1" {
		Expect(figure).To(BeNumerically(comparator, limit), what)
	}
}

func median(all []float64) float64 {
	all = slices.Sorted(slices.Values(all))
	middle := len(all) / 2
	if len(all)%2 == 1 {
		return all[middle]
	}
	return (all[middle-1] + all[middle]) / 2
}

// observer records when the challenges of a namespace were created, ran and were deleted.
type observer struct {
	running, deleted *bulk.Observer

	mu      sync.Mutex
	created map[string]time.Time
}

func observe(ctx context.Context, ns string) *observer {
	GinkgoHelper()
	return &observer{
		created: map[string]time.Time{},
		running: bulk.Observe(ctx, &hexactfv1.ChallengeList{}, ns, func(c *hexactfv1.Challenge) bool {
			return c.Status.CurrentStatus.State == hexactfv1.StateRunning
		}),
		deleted: bulk.Observe(ctx, &hexactfv1.ChallengeList{}, ns, func(c *hexactfv1.Challenge) bool { return c.DeletionTimestamp != nil }),
	}
}

// latencies are the sorted times from creation to Running.
func (o *observer) latencies() (all []time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for name, at := range o.running.Times() {
		all = append(all, at.Sub(o.created[name]))
	}
	slices.Sort(all)
	return all
}

// create creates a challenge, and records when.
func (o *observer) create(ctx context.Context, ns, definition string) *hexactfv1.Challenge {
	GinkgoHelper()
	c := hexactftest.New(ns, definition)
	o.mu.Lock()
	o.created[client.ObjectKeyFromObject(c).String()] = time.Now()
	o.mu.Unlock()
	Expect(k8s.Create(ctx, c)).To(Succeed())
	return c
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[min(len(sorted)-1, int(float64(len(sorted))*q))].Round(time.Millisecond)
}

// A result is the rate and the latencies of many challenges.
type result struct {
	perSecond float64
	latencies []time.Duration
}

func (t result) String() string {
	return fmt.Sprintf("%.1f/s, to Running p50 %s, p99 %s", t.perSecond, quantile(t.latencies, 0.5), quantile(t.latencies, 0.99))
}

// startAll creates n challenges, one every pace or, if that is zero, as fast as possible, and waits until all run. If begin
// is not nil, it starts them in place of the operator.
func startAll(ctx context.Context, n int, pace time.Duration, begin func(ctx context.Context, c *hexactfv1.Challenge)) result {
	GinkgoHelper()
	ns := hexactftest.Define(ctx, "web", hexactftest.OneComponent)
	o := observe(ctx, ns)
	one := func(int) {
		c := o.create(ctx, ns, "web")
		if begin != nil {
			begin(ctx, c)
		}
	}
	began := time.Now()
	if pace == 0 {
		bulk.Each(n, one)
	} else {
		ticker := time.NewTicker(pace)
		defer ticker.Stop()
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				defer GinkgoRecover()
				one(i)
			})
			<-ticker.C
		}
		all.Wait()
	}
	_, last := o.running.Await(n)
	return result{float64(n) / last.Sub(began).Seconds(), o.latencies()}
}

// resourceVersions are those of all objects of a namespace.
func resourceVersions(ctx context.Context, ns string) map[string]string {
	GinkgoHelper()
	versions := map[string]string{}
	for _, list := range []client.ObjectList{
		&hexactfv1.ChallengeList{}, &appsv1.DeploymentList{}, &corev1.ServiceList{}, &networkingv1.NetworkPolicyList{}, &eventsv1.EventList{},
	} {
		Expect(k8s.List(ctx, list, client.InNamespace(ns))).To(Succeed())
		Expect(meta.EachListItem(list, func(o runtime.Object) error {
			m := o.(client.Object)
			versions[fmt.Sprintf("%T %s", o, m.GetName())] = m.GetResourceVersion()
			return nil
		})).To(Succeed())
	}
	return versions
}

var _ = Describe("A crowd of challenges", func() {
	It("runs in about the time of its writes, concurrently and at half that rate", func(ctx context.Context) {
		n := crowd()
		b := newBare(ctx)
		var rates, ratios []float64
		for round := range bulk.Number("HEXACTF_ROUNDS", 1) {
			inprocess.Pause()()
			byOperator := startAll(ctx, n, 0, nil)
			inprocess.Pause()
			byBare := startAll(ctx, n, 0, b.begin)
			b.deleteAll(ctx) // the operator would reconcile them
			rates, ratios = append(rates, byOperator.perSecond), append(ratios, byOperator.perSecond/byBare.perSecond)
			AddReportEntry(fmt.Sprintf("%d concurrently, round %d", n, round+1), fmt.Sprintf("operator %s; bare client %s: ratio %.2f", byOperator, byBare, byOperator.perSecond/byBare.perSecond))
		}
		pace := time.Duration(2 * float64(time.Second) / median(rates))
		n *= 3 // with a hundred, the 99th percentile would be the slowest one
		inprocess.Pause()()
		startAll(ctx, 1, 0, nil) // the operator runs
		byOperator := startAll(ctx, n, pace, nil)
		inprocess.Pause()
		startAll(ctx, 1, 0, b.begin)
		byBare := startAll(ctx, n, pace, b.begin)
		ratio := func(q float64) float64 {
			return quantile(byOperator.latencies, q).Seconds() / quantile(byBare.latencies, q).Seconds()
		}
		AddReportEntry(fmt.Sprintf("%d, one every %s", n, pace.Round(time.Millisecond)), fmt.Sprintf("operator %s; bare client %s: ratio p50 %.2f, p99 %.2f", byOperator, byBare, ratio(0.5), ratio(0.99)))
		b.deleteAll(ctx)
		target(median(ratios), "challenges per second, to those of a bare client", ">=", 0.85)
		target(ratio(0.5), "time to Running, p50, to that of a bare client", "<=", 1.3)
		target(ratio(0.99), "time to Running, p99, to that of a bare client", "<=", 2)
	}, SpecTimeout(time.Hour))

	It("costs no write while nothing changes", func(ctx context.Context) {
		n := bulk.Number("HEXACTF_QUIET", 20)
		ns := hexactftest.Define(ctx, "web", hexactftest.OneComponent)
		o := observe(ctx, ns)
		bulk.Each(n, func(int) { o.create(ctx, ns, "web") })
		o.running.Await(n)
		Eventually(func(g Gomega) {
			var all hexactfv1.ChallengeList
			g.Expect(k8s.List(ctx, &all, client.InNamespace(ns))).To(Succeed())
			for _, c := range all.Items {
				g.Expect(c.Status.Messages.Outbox).To(BeEmpty())
			}
		}).WithTimeout(5 * time.Minute).Should(Succeed())
		var before map[string]string
		settle := 10 * time.Second // the last events are still being written
		Eventually(func() bool {
			last := before
			before = resourceVersions(ctx, ns)
			return maps.Equal(last, before)
		}).WithPolling(settle).WithTimeout(5 * time.Minute).Should(BeTrue())
		<-time.After(time.Duration(bulk.Number("HEXACTF_QUIET_SECONDS", 5)) * time.Second)
		Expect(resourceVersions(ctx, ns)).To(Equal(before))
		AddReportEntry(fmt.Sprintf("%d unchanged", n), "no object changed, no event was written")
	}, SpecTimeout(time.Hour))

	It("expires together, all deletions being asked for in about the time of bare ones", func(ctx context.Context) {
		n := bulk.Number("HEXACTF_EXPIRING", 20)
		b := newBare(ctx)
		var ratios []float64
		for round := range bulk.Number("HEXACTF_ROUNDS", 1) {
			byOperator := expireTogether(ctx, n)
			byBare := b.deleteTogether(ctx, n)
			ratios = append(ratios, byOperator.Seconds()/byBare.Seconds())
			AddReportEntry(fmt.Sprintf("%d deletions, round %d", n, round+1), fmt.Sprintf("operator %s, bare client %s: ratio %.2f", byOperator, byBare, ratios[round]))
		}
		target(median(ratios), "time of all deletions, to that of a bare client", "<=", 1.3)
	}, SpecTimeout(time.Hour))
})

// expireTogether lets challenges expire at the same moment, and returns the time from the first deletion request to the
// last one.
func expireTogether(ctx context.Context, n int) time.Duration {
	GinkgoHelper()
	inprocess.Pause()()
	o, ns, all := startMany(ctx, n)
	// Enough time for these writes, and for the operator to be idle again.
	at := time.Now().Add(5*time.Second + time.Duration(n)*40*time.Millisecond).Truncate(time.Second)
	bulk.Each(n, func(i int) {
		Expect(k8s.Status().Patch(ctx, &all[i], client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"status":{"expiresAt":%q}}`, at.UTC().Format(time.RFC3339))))).To(Succeed())
	})
	Expect(time.Now()).To(BeTemporally("<", at.Add(-time.Second)), "the operator was not idle")
	first, last := o.deleted.Await(n)
	Expect(first).To(BeTemporally(">=", at.Add(-time.Second)))
	awaitAllGone(ctx, ns)
	return last.Sub(first)
}

// deleteTogether is the time of a client that only deletes as many challenges.
func (b *bare) deleteTogether(ctx context.Context, n int) time.Duration {
	GinkgoHelper()
	inprocess.Pause()()
	o, ns, all := startMany(ctx, n)
	resume := inprocess.Pause()
	bulk.Each(n, func(i int) {
		Expect(b.Delete(ctx, &all[i], client.Preconditions{UID: &all[i].UID}, client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
	})
	first, last := o.deleted.Await(n)
	resume()
	awaitAllGone(ctx, ns)
	return last.Sub(first)
}

// startMany returns running challenges in a namespace of their own, and their observer.
func startMany(ctx context.Context, n int) (o *observer, ns string, all []hexactfv1.Challenge) {
	GinkgoHelper()
	ns = hexactftest.Namespace(ctx)
	hexactftest.Definition(ctx, ns, "web", hexactftest.OneComponent)
	o = observe(ctx, ns)
	bulk.Each(n, func(int) { o.create(ctx, ns, "web") })
	o.running.Await(n)
	list := apiserver.List[hexactfv1.ChallengeList](ctx, client.InNamespace(ns))
	Expect(list.Items).To(HaveLen(n))
	return o, ns, list.Items
}

// awaitAllGone waits until nothing is left of challenges that are being deleted: the garbage collector would slow down the
// next measurement.
func awaitAllGone(ctx context.Context, ns string) {
	GinkgoHelper()
	for _, list := range []client.ObjectList{
		&hexactfv1.ChallengeList{}, &appsv1.DeploymentList{}, &appsv1.ReplicaSetList{}, &corev1.PodList{}, &corev1.ServiceList{},
		&discoveryv1.EndpointSliceList{}, &networkingv1.NetworkPolicyList{},
	} {
		Eventually(func() []string {
			return apiserver.Names(ctx, list, client.InNamespace(ns))
		}).WithTimeout(20 * time.Minute).WithPolling(time.Second).Should(BeEmpty())
	}
}

// bare writes what the operator writes for a challenge: it has copies of the objects, reads nothing and compares nothing.
// It waits only for the Deployment.
type bare struct {
	client.Client
	// What the operator wrote for one challenge.
	service    corev1.Service
	policy     networkingv1.NetworkPolicy
	deployment appsv1.Deployment
	status     hexactfv1.ChallengeStatus

	mu    sync.Mutex
	waits map[types.UID]func()
	made  []*hexactfv1.Challenge
}

func newBare(ctx context.Context) *bare {
	GinkgoHelper()
	b := &bare{Client: apiserver.As(apiserver.OperatorUser), waits: map[types.UID]func(){}}

	resume := inprocess.Pause()
	resume()
	ns := hexactftest.Define(ctx, "web", hexactftest.OneComponent)
	like := running(ctx, ns, "web")
	b.status = like.Status
	b.service = *get(ctx, ns, prefix(like, "web")+"-svc", &corev1.Service{})
	b.policy = *get(ctx, ns, like.Name+"-policy", &networkingv1.NetworkPolicy{})
	b.deployment = *get(ctx, ns, prefix(like, "web")+"-deploy", &appsv1.Deployment{})
	hexactftest.Delete(ctx, like)
	expect.Gone(ctx, like)
	inprocess.Pause()

	w, err := k8s.Watch(ctx, &appsv1.DeploymentList{}, client.MatchingLabels{hexactfv1.LabelManagedBy: hexactfv1.ManagedBy})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(w.Stop)
	go b.watch(w)
	return b
}

func (b *bare) watch(w watch.Interface) {
	for e := range w.ResultChan() {
		d, ok := e.Object.(*appsv1.Deployment)
		if !ok || metav1.GetControllerOf(d) == nil ||
			!slices.ContainsFunc(d.Status.Conditions, func(c appsv1.DeploymentCondition) bool {
				return c.Type == appsv1.DeploymentAvailable && c.Status == corev1.ConditionTrue
			}) {
			continue
		}
		uid := metav1.GetControllerOf(d).UID
		b.mu.Lock()
		next := b.waits[uid]
		delete(b.waits, uid)
		b.mu.Unlock()
		if next != nil {
			go next()
		}
	}
}

// metadataOf returns the metadata of an object for another challenge.
func metadataOf(like metav1.ObjectMeta, c *hexactfv1.Challenge, name string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Namespace: c.Namespace, Name: name, Labels: map[string]string{}, Annotations: map[string]string{}}
	for key, value := range like.Labels {
		m.Labels[key] = value
	}
	for key, value := range like.Annotations {
		m.Annotations[key] = value
	}
	m.Labels[hexactfv1.LabelPartOf], m.Labels[hexactfv1.LabelInstance] = c.Name, prefix(c, "web")
	m.Annotations[hexactfv1.AnnotationUID] = string(c.UID)
	for _, owner := range like.OwnerReferences { // a network policy has none
		owner.Name, owner.UID = c.Name, c.UID
		m.OwnerReferences = append(m.OwnerReferences, owner)
	}
	return m
}

func (b *bare) begin(ctx context.Context, c *hexactfv1.Challenge) {
	GinkgoHelper()
	b.mu.Lock()
	b.made = append(b.made, c)
	b.waits[c.UID] = func() {
		defer GinkgoRecover()
		done := b.status
		done.Messages = &hexactfv1.Messages{Recorded: 2, Outbox: []hexactfv1.Message{{Sequence: 2, NewStatus: hexactfv1.StateRunning, Timestamp: metav1.NowMicro(), Endpoint: done.Endpoint}}}
		Expect(b.patchStatus(ctx, c, done)).To(Succeed())
		b.event(ctx, c, hexactfv1.ReasonRunning)
		// As in the operator, the acknowledged message is removed a little later.
		time.AfterFunc(2*time.Second, func() {
			done.Messages = &hexactfv1.Messages{Recorded: 2}
			_ = b.patchStatus(ctx, c, done)
		})
	}
	b.mu.Unlock()
	Expect(b.Patch(ctx, c.DeepCopy(), client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"finalizers":[%q]}}`, hexactfv1.Finalizer)))).To(Succeed())
	creating := b.status
	creating.CurrentStatus.State, creating.Endpoint, creating.RunningAt = hexactfv1.StateCreating, 0, nil
	Expect(b.patchStatus(ctx, c, creating)).To(Succeed())
	b.event(ctx, c, hexactfv1.ReasonCreating)
	service := &corev1.Service{ObjectMeta: metadataOf(b.service.ObjectMeta, c, prefix(c, "web")+"-svc"), Spec: corev1.ServiceSpec{
		Type: b.service.Spec.Type, Selector: map[string]string{hexactfv1.LabelInstance: prefix(c, "web")},
		Ports: []corev1.ServicePort{{Port: b.service.Spec.Ports[0].Port, TargetPort: b.service.Spec.Ports[0].TargetPort}},
	}}
	policy := &networkingv1.NetworkPolicy{ObjectMeta: metadataOf(b.policy.ObjectMeta, c, c.Name+"-policy"), Spec: b.policy.Spec}
	var wg sync.WaitGroup
	for _, o := range []client.Object{service, policy} {
		wg.Go(func() {
			defer GinkgoRecover()
			Expect(b.Create(ctx, o)).To(Succeed())
		})
	}
	wg.Wait()
	deployment := &appsv1.Deployment{ObjectMeta: metadataOf(b.deployment.ObjectMeta, c, prefix(c, "web")+"-deploy"), Spec: *b.deployment.Spec.DeepCopy()}
	deployment.Spec.Selector.MatchLabels = map[string]string{hexactfv1.LabelInstance: prefix(c, "web")}
	deployment.Spec.Template.Labels = deployment.Labels
	Expect(b.Create(ctx, deployment)).To(Succeed())
	creating.Endpoint = service.Spec.Ports[0].NodePort
	Expect(b.patchStatus(ctx, c, creating)).To(Succeed())
}

func (b *bare) patchStatus(ctx context.Context, c *hexactfv1.Challenge, status hexactfv1.ChallengeStatus) error {
	data, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	return b.Status().Patch(ctx, c.DeepCopy(), client.RawPatch(types.MergePatchType, data))
}

func (b *bare) event(ctx context.Context, c *hexactfv1.Challenge, reason string) {
	// As in the operator, no other write waits for it.
	go func() {
		_ = b.Create(ctx, &eventsv1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, GenerateName: "crowd-"}, EventTime: metav1.NowMicro(),
			ReportingController: "integration", ReportingInstance: "integration", Action: "Create", Reason: reason, Type: corev1.EventTypeNormal,
			Regarding: corev1.ObjectReference{APIVersion: hexactfv1.GroupVersion.String(), Kind: "Challenge", Namespace: c.Namespace, Name: c.Name, UID: c.UID},
		})
	}()
}

// deleteAll deletes the challenges of the bare client, removes their finalizers, and waits until Kubernetes has deleted
// their objects.
func (b *bare) deleteAll(ctx context.Context) {
	GinkgoHelper()
	bulk.Each(len(b.made), func(n int) {
		hexactftest.Delete(ctx, b.made[n])
		Expect(client.IgnoreNotFound(k8s.Patch(ctx, b.made[n], apiserver.RawPatch(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
	})
	for _, c := range b.made {
		expect.Gone(ctx, c)
		expect.Gone(ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: prefix(c, "web") + "-deploy"}})
	}
	b.made = nil
}
