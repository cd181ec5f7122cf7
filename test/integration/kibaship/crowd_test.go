package kibaship

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bulk"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/kibashiptest"
	"github.com/bergctf/berg-operator/test/lib/transport"
)

// projectName finds the name of a Project of these specs in a path.
var projectName = regexp.MustCompile(`it-[0-9a-f]{8}`)

// crowd are the names of the Projects of a spec.
func crowd(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = kibashiptest.NewName()
	}
	return names
}

// removed deletes Projects and waits until they are gone.
func removed(ctx context.Context, names []string) {
	GinkgoHelper()
	bulk.Each(len(names), func(i int) {
		Expect(client.IgnoreNotFound(k8s.Delete(ctx, &kibashipv1.Project{ObjectMeta: metav1.ObjectMeta{Name: names[i]}}))).To(Succeed())
	})
	Eventually(func(g Gomega) {
		var left kibashipv1.ProjectList
		g.Expect(k8s.List(ctx, &left)).To(Succeed())
		// A spec that failed may have left others.
		g.Expect(slices.ContainsFunc(left.Items, func(p kibashipv1.Project) bool { return slices.Contains(names, p.Name) })).To(BeFalse())
	}).WithTimeout(30 * time.Minute).WithPolling(time.Second).Should(Succeed())
}

// observeProjects records which Projects become Ready, by this operator or another client.
func observeProjects(ctx context.Context) *bulk.Observer {
	return bulk.Observe(ctx, &kibashipv1.ProjectList{}, "", func(p *kibashipv1.Project) bool { return p.Status.Phase == kibashipv1.ProjectReady })
}

// observeApplications is observeProjects for Applications.
func observeApplications(ctx context.Context) *bulk.Observer {
	return bulk.Observe(ctx, &kibashipv1.ApplicationList{}, "", func(a *kibashipv1.Application) bool { return a.Status.Phase == kibashipv1.ApplicationReady })
}

// requests counts what a client asks of the API server, watches left out.
type requests struct {
	mu sync.Mutex
	of map[string]int
}

func (r *requests) wrap(next http.RoundTripper) http.RoundTripper {
	return transport.Func(func(request *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(request)
		if request.URL.Query().Get("watch") != "" || request.URL.Query().Get("limit") != "" || strings.Contains(request.URL.Path, "/leases") {
			return response, err
		}
		what := request.Method + " " + subjectOf(request.URL.Path)
		if err == nil && response.StatusCode >= http.StatusBadRequest {
			what += " " + strconv.Itoa(response.StatusCode)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.of == nil {
			r.of = map[string]int{}
		}
		r.of[what]++
		return response, err
	})
}

// subjectOf is the kind that a request is about, and its subresource.
func subjectOf(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if parts = parts[min(len(parts), 2):]; len(parts) > 0 && strings.HasPrefix(path, "/apis/") {
		parts = parts[1:]
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	if len(parts) > 2 {
		return parts[0] + "/" + parts[2]
	}
	return strings.Join(parts[:min(len(parts), 1)], "")
}

// take returns what was counted for each of n, and starts again from zero.
func (r *requests) take(n int) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	all, reported := 0, []string{}
	for _, what := range slices.Sorted(maps.Keys(r.of)) {
		all += r.of[what]
		reported = append(reported, fmt.Sprintf("%s %.2f", what, float64(r.of[what])/float64(n)))
	}
	r.of = nil
	return fmt.Sprintf("%.2f requests each (%s)", float64(all)/float64(n), strings.Join(reported, ", "))
}

// reaches waits until so many requests were made.
func (r *requests) reaches(what string, n int) {
	GinkgoHelper()
	Eventually(func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.of[what]
	}).WithTimeout(2 * time.Minute).Should(BeNumerically(">=", n))
}

// A turn is how fast many became Ready.
type turn struct{ projects, applications float64 }

// take creates Projects and then Applications of them, as fast as can be, and waits until all
// are Ready. Where by is not nil it works on them in place of the operator. Between the two, and
// at the end, the events are awaited: the operator writes them last.
func take(ctx context.Context, names []string, applications int, asks *requests, by *bare) (t turn) {
	GinkgoHelper()
	who := "operator"
	if by != nil {
		who = "bare client"
	}
	seen := observeProjects(ctx)
	asks.take(1)
	reconciliations := reconciliationsOf("kibaship-project")
	began := time.Now()
	bulk.Each(len(names), func(i int) {
		p := kibashiptest.NewProject(names[i])
		Expect(k8s.Create(ctx, p)).To(Succeed())
		if by != nil {
			by.project(ctx, p)
		}
	})
	_, last := seen.Await(len(names))
	t.projects = float64(len(names)) / last.Sub(began).Seconds()
	asks.reaches("POST events", 2*len(names))
	AddReportEntry(who, fmt.Sprintf("%d projects: %.1f/s, %s, %.1f reconciliations each", len(names), t.projects, asks.take(len(names)), (reconciliationsOf("kibaship-project")-reconciliations)/float64(len(names))))

	seen = observeApplications(ctx)
	reconciliations = reconciliationsOf("kibaship-application")
	began = time.Now()
	bulk.Each(applications, func(i int) {
		a := kibashiptest.NewApplication(names[i%len(names)], fmt.Sprint("web-", i))
		Expect(k8s.Create(ctx, a)).To(Succeed())
		if by != nil {
			by.application(ctx, a)
		}
	})
	_, last = seen.Await(applications)
	t.applications = float64(applications) / last.Sub(began).Seconds()
	asks.reaches("POST events", applications)
	AddReportEntry(who, fmt.Sprintf("%d applications: %.1f/s, %s, %.1f reconciliations each", applications, t.applications, asks.take(applications), (reconciliationsOf("kibaship-application")-reconciliations)/float64(applications)))
	return t
}

func reconciliationsOf(controller string) float64 {
	return inprocess.Metric("controller_runtime_reconcile_total", "controller", controller)
}

// KIBASHIP_CROWD and KIBASHIP_APPLICATIONS are how many: few, unless make kibaship-crowd asks for
// more. That also sets KIBASHIP_TARGET, the part of the bare client's throughput that the operator
// must have in the median of its rounds; else it is told, and nothing is asked of it. Kubernetes takes half a second for each namespace that goes.
var _ = Describe("A crowd of projects", Serial, func() {
	It("is made in about the time of its writes, and so are its applications", func(ctx context.Context) {
		projects, applications := bulk.Number("KIBASHIP_CROWD", 20), bulk.Number("KIBASHIP_APPLICATIONS", 40)
		asks := &requests{}
		inprocess.Instead(clock.RealClock{}, nil, asks.wrap)
		by := newBare(ctx, asks)
		var ratios [2][]float64
		for round := range bulk.Number("KIBASHIP_ROUNDS", 1) {
			inprocess.Instead(clock.RealClock{}, nil, asks.wrap)
			names := crowd(projects)
			operator := take(ctx, names, applications, asks, nil)
			began := time.Now()
			removed(ctx, names)
			removal := time.Since(began)

			inprocess.Pause()
			names = crowd(projects)
			alone := take(ctx, names, applications, asks, by)
			inprocess.Instead(clock.RealClock{}, nil, asks.wrap)
			removed(ctx, names)
			ratios[0] = append(ratios[0], operator.projects/alone.projects)
			ratios[1] = append(ratios[1], operator.applications/alone.applications)
			AddReportEntry(fmt.Sprint("Round ", round+1), fmt.Sprintf("%d projects: operator %.1f/s, bare client %.1f/s, throughput %.2f; %d applications: %.1f/s, %.1f/s, %.2f; removal %.1fs",
				projects, operator.projects, alone.projects, ratios[0][round], applications, operator.applications, alone.applications, ratios[1][round], removal.Seconds()))
		}
		for _, r := range ratios {
			slices.Sort(r)
		}
		middle := len(ratios[0]) / 2
		AddReportEntry("The crowd", fmt.Sprintf("median throughput of %d rounds: projects %.2f, applications %.2f", len(ratios[0]), ratios[0][middle], ratios[1][middle]))
		// What other work on the machine costs is not the operator's: nothing is asked where none is named.
		if least := os.Getenv("KIBASHIP_TARGET"); least != "" {
			target, err := strconv.ParseFloat(least, 64)
			Expect(err).NotTo(HaveOccurred())
			Expect(ratios[0][middle]).To(BeNumerically(">=", target), "projects")
			Expect(ratios[1][middle]).To(BeNumerically(">=", target), "applications")
		}
	}, SpecTimeout(2*time.Hour))

	It("is left alone: nothing is written, also by an operator that has just started", func(ctx context.Context) {
		n, seconds := bulk.Number("KIBASHIP_QUIET", 15), bulk.Number("KIBASHIP_QUIET_SECONDS", 5)
		names := crowd(n)
		seen := observeProjects(ctx)
		bulk.Each(n, func(i int) {
			Expect(k8s.Create(ctx, kibashiptest.NewProject(names[i]))).To(Succeed())
		})
		seen.Await(n)
		seen = observeApplications(ctx)
		bulk.Each(n, func(i int) {
			Expect(k8s.Create(ctx, kibashiptest.NewApplication(names[i], "web"))).To(Succeed())
		})
		seen.Await(n)
		Eventually(func(g Gomega) {
			var projects kibashipv1.ProjectList
			g.Expect(k8s.List(ctx, &projects)).To(Succeed())
			for i := range projects.Items {
				g.Expect(projects.Items[i].Status.Usage.Applications).To(BeEquivalentTo(1))
			}
		}).WithTimeout(5 * time.Minute).WithPolling(time.Second).Should(Succeed())

		var writes atomic.Int64
		inprocess.Restart(nil, transport.Showing(func(r *http.Request) {
			// What former specs have left still ends.
			project := projectName.FindString(r.URL.Path)
			if r.Method != http.MethodGet && !transport.Asks(r) && (project == "" || slices.Contains(names, project)) {
				writes.Add(1)
				GinkgoWriter.Println(r.Method, r.URL.Path)
			}
		}))
		Consistently(writes.Load).WithTimeout(time.Duration(seconds) * time.Second).Should(BeZero())
		AddReportEntry("Left alone", fmt.Sprintf("%d projects with an application each, %d s: %d writes", n, seconds, writes.Load()))
		removed(ctx, names)
	}, SpecTimeout(2*time.Hour))
})

// bare writes what the operator writes: it knows it beforehand, reads nothing and compares
// nothing.
type bare struct {
	client.Client
	// like is what the operator wrote for one Project and an Application.
	like struct {
		name, uuid, applicationName string
		uid, applicationUID         types.UID
		objects                     [][]byte
		status, applicationStatus   []byte
		events, applicationEvents   [][]byte
	}
}

// newBare looks at what the operator writes for a Project and an Application of it.
func newBare(ctx context.Context, asks *requests) *bare {
	GinkgoHelper()
	rc := rest.CopyConfig(restConfig)
	rc.Impersonate = rest.ImpersonationConfig{UserName: apiserver.OperatorUser}
	rc.QPS = -1
	rc.Wrap(asks.wrap)
	c, err := client.New(rc, client.Options{Scheme: k8s.Scheme()})
	Expect(err).NotTo(HaveOccurred())
	b := &bare{Client: c}

	p := kibashiptest.NewProject(kibashiptest.NewName())
	Expect(k8s.Create(ctx, p)).To(Succeed())
	expect.Settles(ctx, p, kibashipv1.ProjectReady)
	Expect(k8s.Get(ctx, client.ObjectKeyFromObject(p), p)).To(Succeed())
	b.like.name, b.like.uuid, b.like.uid = p.Name, p.Labels[kibashipv1.LabelUUID], p.UID
	b.like.status = encoded(map[string]any{"status": p.Status})
	where := kibashiptest.Namespace(p.Name)
	named := func(what string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: where, Name: "project-" + p.Name + "-" + what + "-kibaship-com"}
	}
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: where}},
		&rbacv1.RoleBinding{ObjectMeta: named("operator-binding")}, &corev1.ServiceAccount{ObjectMeta: named("sa")},
		&rbacv1.Role{ObjectMeta: named("admin-role")}, &rbacv1.RoleBinding{ObjectMeta: named("admin-binding")},
	} {
		b.like.objects = append(b.like.objects, likeness(ctx, o))
	}
	a := kibashiptest.ReadyApplication(ctx, p.Name, "web")
	Expect(k8s.Get(ctx, client.ObjectKeyFromObject(a), a)).To(Succeed())
	b.like.applicationName, b.like.applicationUID = a.Name, a.UID
	b.like.applicationStatus = encoded(map[string]any{"status": a.Status})
	Eventually(func(g Gomega) {
		b.like.events, b.like.applicationEvents = eventsAbout(ctx, metav1.NamespaceDefault, p.UID), eventsAbout(ctx, where, a.UID)
		g.Expect(b.like.events).To(HaveLen(2))
		g.Expect(b.like.applicationEvents).To(HaveLen(1))
	}).Should(Succeed())
	removed(ctx, []string{p.Name})
	return b
}

// likeness is an object as it was written.
func likeness(ctx context.Context, o client.Object) []byte {
	GinkgoHelper()
	Expect(k8s.Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
	o.SetUID("")
	o.SetResourceVersion("")
	o.SetCreationTimestamp(metav1.Time{})
	o.SetManagedFields(nil)
	o.SetGeneration(0)
	if ns, ok := o.(*corev1.Namespace); ok {
		ns.Spec, ns.Status = corev1.NamespaceSpec{}, corev1.NamespaceStatus{}
		delete(ns.Labels, corev1.LabelMetadataName)
	}
	return encoded(o)
}

func eventsAbout(ctx context.Context, namespace string, id types.UID) (all [][]byte) {
	GinkgoHelper()
	events := apiserver.List[eventsv1.EventList](ctx, client.InNamespace(namespace))
	for i := range events.Items {
		e := &events.Items[i]
		if e.Regarding.UID == id {
			e.ObjectMeta = metav1.ObjectMeta{Namespace: namespace, GenerateName: "crowd-"}
			e.Regarding.ResourceVersion = ""
			all = append(all, encoded(e))
		}
	}
	return all
}

func encoded(o any) []byte {
	GinkgoHelper()
	data, err := json.Marshal(o)
	Expect(err).NotTo(HaveOccurred())
	return data
}

// decoded is what was written for one, as another one has it.
func decoded[T any](like []byte, other *strings.Replacer) *T {
	GinkgoHelper()
	into := new(T)
	Expect(json.Unmarshal([]byte(other.Replace(string(like))), into)).To(Succeed())
	return into
}

// write creates an object. What a binding of a moment ago allows is tried again, as by the operator.
func (b *bare) write(ctx context.Context, o client.Object) {
	GinkgoHelper()
	var last error
	_ = wait.ExponentialBackoffWithContext(ctx, wait.Backoff{Duration: 5 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 9}, func(ctx context.Context) (bool, error) {
		last = b.Create(ctx, o, client.FieldOwner("berg-operator"))
		return !apierrors.IsForbidden(last), nil
	})
	Expect(last).To(Succeed())
}

func (b *bare) project(ctx context.Context, p *kibashipv1.Project) {
	GinkgoHelper()
	before := p.DeepCopy()
	p.Finalizers = []string{kibashipv1.ProjectFinalizer}
	Expect(b.Patch(ctx, p, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))).To(Succeed())
	as := strings.NewReplacer(b.like.name, p.Name, b.like.uuid, p.Labels[kibashipv1.LabelUUID], string(b.like.uid), string(p.UID))
	b.write(ctx, decoded[corev1.Namespace](b.like.objects[0], as))
	b.write(ctx, decoded[rbacv1.RoleBinding](b.like.objects[1], as))
	b.write(ctx, decoded[corev1.ServiceAccount](b.like.objects[2], as))
	b.write(ctx, decoded[rbacv1.Role](b.like.objects[3], as))
	b.write(ctx, decoded[rbacv1.RoleBinding](b.like.objects[4], as))
	before = p.DeepCopy()
	p.Status = decoded[kibashipv1.Project](b.like.status, as).Status
	Expect(b.Status().Patch(ctx, p, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))).To(Succeed())
	b.tell(ctx, b.like.events, as)
}

func (b *bare) application(ctx context.Context, a *kibashipv1.Application) {
	GinkgoHelper()
	before := a.DeepCopy()
	a.Finalizers, a.Labels = []string{kibashipv1.ApplicationFinalizer}, map[string]string{kibashipv1.LabelProjectUUID: uuid.NewString()}
	Expect(b.Patch(ctx, a, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))).To(Succeed())
	as := strings.NewReplacer(b.like.applicationName, a.Name, b.like.name, a.Spec.ProjectRef.Name, string(b.like.applicationUID), string(a.UID))
	before = a.DeepCopy()
	a.Status = decoded[kibashipv1.Application](b.like.applicationStatus, as).Status
	Expect(b.Status().Patch(ctx, a, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))).To(Succeed())
	b.tell(ctx, b.like.applicationEvents, as)
}

// tell writes events. As those of the operator, they delay no other request.
func (b *bare) tell(ctx context.Context, like [][]byte, as *strings.Replacer) {
	go func() {
		defer GinkgoRecover()
		for _, data := range like {
			_ = b.Create(ctx, decoded[eventsv1.Event](data, as))
		}
	}()
}
