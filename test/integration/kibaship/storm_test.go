package kibaship

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/kibashiptest"
	"github.com/bergctf/berg-operator/test/lib/transport"
)

// mortal is an operator's connection that is cut for good at one of its writes: that one
// reaches the API server, and its answer nobody. So it is when a process is killed.
type mortal struct {
	at     int64
	writes atomic.Int64
	dead   chan struct{}
}

func (m *mortal) wrap(next http.RoundTripper) http.RoundTripper {
	killed := errors.New("killed")
	return transport.Func(func(r *http.Request) (*http.Response, error) {
		select {
		case <-m.dead:
			return nil, killed
		default:
		}
		about := strings.Contains(r.URL.Path, "it-") && !strings.Contains(r.URL.Path, "/events") || strings.HasSuffix(r.URL.Path, "/namespaces")
		if r.Method == http.MethodGet || !about || m.writes.Add(1) < m.at {
			return next.RoundTrip(r)
		}
		response, err := next.RoundTrip(r)
		if err == nil {
			_ = response.Body.Close()
		}
		select {
		case <-m.dead:
		default:
			close(m.dead)
		}
		return nil, killed
	})
}

// KIBASHIP_LIVES is how many Projects live in the storm: few, unless make chaos-kibaship asks
// for more. The seed of a run is that of Ginkgo.
var _ = Describe("While operators are killed,", Serial, func() {
	It("projects and applications come and go, nothing is lost, nothing is left, and nothing foreign is touched", func(ctx context.Context) {
		count := number("KIBASHIP_LIVES", "16")
		random := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 1))

		By("making what must not be touched")
		foreign := kibashiptest.NewName()
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: kibashiptest.Namespace(foreign), Labels: map[string]string{kibashipv1.LabelUUID: uuidA}}}
		Expect(k8s.Create(ctx, ns)).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			Expect(k8s.Delete(ctx, ns)).To(Succeed())
			expect.Gone(ctx, ns)
		})
		intruder := kibashiptest.Project(ctx, foreign, func(p *kibashipv1.Project) { p.Labels[kibashipv1.LabelUUID] = uuidA })
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(ns), ns)).To(Succeed())
		version := ns.ResourceVersion

		By("the storm")
		var alive, doomed []string
		for len(alive)+len(doomed) < count {
			m := &mortal{at: 1 + random.Int64N(60), dead: make(chan struct{})}
			stop := inprocess.Instead(clock.RealClock{}, inprocess.With(nil), m.wrap)
			for range min(count-len(alive)-len(doomed), 1+random.IntN(8)) {
				name := kibashiptest.NewName()
				Expect(k8s.Create(ctx, kibashiptest.NewProject(name))).To(Succeed())
				alive = append(alive, name)
			}
			for _, name := range alive { // where the namespace is there by now
				_ = k8s.Create(ctx, kibashiptest.NewApplication(name, fmt.Sprint("a", random.IntN(3))))
			}
			if len(alive) > 2 && random.IntN(2) == 0 {
				name := alive[0]
				alive, doomed = alive[1:], append(doomed, name)
				Expect(k8s.Delete(ctx, &kibashipv1.Project{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
			}
			select {
			case <-m.dead:
			case <-time.After(time.Duration(random.IntN(3000)) * time.Millisecond):
			}
			stop()
		}

		By("calm")
		inprocess.Instead(clock.RealClock{}, inprocess.With(nil), nil)
		for _, name := range alive {
			p := &kibashipv1.Project{ObjectMeta: metav1.ObjectMeta{Name: name}}
			expect.Settles(ctx, p, kibashipv1.ProjectReady)
			var applications kibashipv1.ApplicationList
			Expect(k8s.List(ctx, &applications, client.InNamespace(kibashiptest.Namespace(name)))).To(Succeed())
			for i := range applications.Items {
				expect.Settles(ctx, &applications.Items[i], kibashipv1.ApplicationReady)
			}
		}
		for _, name := range doomed {
			expect.Gone(ctx, &kibashipv1.Project{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}
		expect.Settles(ctx, intruder, kibashipv1.ProjectFailed)
		Expect(k8s.Delete(ctx, intruder)).To(Succeed())
		expect.Gone(ctx, intruder)
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(ns), ns)).To(Succeed())
		Expect(ns.ResourceVersion).To(Equal(version))

		By("the end")
		removed(ctx, alive)
		var namespaces corev1.NamespaceList
		Expect(k8s.List(ctx, &namespaces)).To(Succeed())
		for _, left := range namespaces.Items {
			if left.Name != ns.Name {
				Expect(left.Name).NotTo(HavePrefix("project-it-"))
			}
		}
	}, SpecTimeout(time.Hour))
})
