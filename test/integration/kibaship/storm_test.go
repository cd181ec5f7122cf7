package kibaship

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
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

// concerns tells which writes count until an operator is killed.
func concerns(r *http.Request) bool {
	return strings.Contains(r.URL.Path, "it-") && !strings.Contains(r.URL.Path, "/events") || strings.HasSuffix(r.URL.Path, "/namespaces")
}

// tektonsKinds installs the definitions of Tekton's kinds, and nothing that works on them, until
// the spec ends.
func tektonsKinds(ctx context.Context) {
	GinkgoHelper()
	text, err := os.ReadFile(filepath.Join("..", "builds", "testdata", "tekton.yaml"))
	Expect(err).NotTo(HaveOccurred())
	for part := range strings.SplitSeq(string(text), "\n---\n") {
		definition := apiserver.Object(part)
		apiserver.InstallDefinition(ctx, definition)
		DeferCleanup(func(ctx context.Context) {
			expect.Removed(ctx, definition)
		})
	}
}

// runsOf are the PipelineRuns of a namespace, or of all.
func runsOf(ctx context.Context, g Gomega, namespace string) []unstructured.Unstructured {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: "tekton.dev", Version: "v1", Kind: "PipelineRunList"})
	g.Expect(k8s.List(ctx, list, client.InNamespace(namespace))).To(Succeed())
	return list.Items
}

// oneRunEach waits until each Deployment of a repository in a Project has its one run, and there is
// no other; it returns how many there are.
func oneRunEach(ctx context.Context, project string) (builds int) {
	GinkgoHelper()
	where := kibashiptest.Namespace(project)
	Eventually(func(g Gomega) {
		var deployments kibashipv1.DeploymentList
		g.Expect(k8s.List(ctx, &deployments, client.InNamespace(where))).To(Succeed())
		runs := runsOf(ctx, g, where)
		g.Expect(runs).To(HaveLen(len(deployments.Items)))
		for i := range deployments.Items {
			d := &deployments.Items[i]
			g.Expect(d.Status.CurrentPipelineRun).NotTo(BeNil(), d.Status.Message)
			g.Expect(slices.ContainsFunc(runs, func(run unstructured.Unstructured) bool {
				status, _, _ := unstructured.NestedString(run.Object, "spec", "status")
				return run.GetName() == d.Status.CurrentPipelineRun.Name && metav1.IsControlledBy(&run, d) && status == ""
			})).To(BeTrue(), "no live run of its own")
		}
		builds = len(runs)
	}).WithTimeout(2 * time.Minute).Should(Succeed())
	return builds
}

// building are the settings by which a storm builds. No controller works on the runs: they all stay alive.
var building = map[string]string{
	"BUILD_REGISTRY": "registry.example.org", "BUILD_PUSH_IMAGE": "example.org/operator:v1",
	"BUILD_GIT_IMAGE": "example.org/git:v1", "BUILD_IMAGE": "example.org/kaniko:v1",
}

// KIBASHIP_LIVES is how many Projects live in the storm: few, unless make chaos-kibaship asks
// for more. The seed of a run is that of Ginkgo.
var _ = Describe("While operators are killed,", Serial, func() {
	It("projects, applications and builds come and go, nothing is lost, nothing is left, and nothing foreign is touched", func(ctx context.Context) {
		count := bulk.Number("KIBASHIP_LIVES", 16)
		random := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 1))
		about := transport.NewWeather(GinkgoRandomSeed())

		tektonsKinds(ctx)

		By("making what must not be touched")
		foreign := kibashiptest.NewName()
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: kibashiptest.Namespace(foreign), Labels: map[string]string{kibashipv1.LabelUUID: uuidA}}}
		Expect(k8s.Create(ctx, ns)).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			expect.Deleted(ctx, ns)
		})
		intruder := kibashiptest.Project(ctx, foreign, func(p *kibashipv1.Project) { p.Labels[kibashipv1.LabelUUID] = uuidA })
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(ns), ns)).To(Succeed())
		version := ns.ResourceVersion

		By("the storm")
		var alive, doomed []string
		for len(alive)+len(doomed) < count {
			m := transport.NewKill(1+random.Int64N(60), false, concerns)
			stop := inprocess.Instead(clock.RealClock{}, inprocess.With(building), func(next http.RoundTripper) http.RoundTripper { return m.Wrap(about.Wrap(next)) })
			about.Blows.Store(true)
			for range min(count-len(alive)-len(doomed), 1+random.IntN(8)) {
				name := kibashiptest.NewName()
				Expect(k8s.Create(ctx, kibashiptest.NewProject(name))).To(Succeed())
				alive = append(alive, name)
			}
			for _, name := range alive { // where the namespace is there by now
				_ = k8s.Create(ctx, kibashiptest.NewApplication(name, fmt.Sprint("a", random.IntN(3))))
			}
			for at, name := range alive {
				if at%3 == 0 {
					if err := k8s.Create(ctx, kibashiptest.NewApplication(name, "site", kibashiptest.Public)); client.IgnoreAlreadyExists(err) == nil {
						_ = k8s.Create(ctx, kibashiptest.NewDeployment(name, "site", "live"))
					}
				}
			}
			if len(alive) > 2 && random.IntN(2) == 0 {
				name := alive[0]
				alive, doomed = alive[1:], append(doomed, name)
				Expect(k8s.Delete(ctx, &kibashipv1.Project{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
			}
			select {
			case <-m.Dead:
			case <-time.After(time.Duration(random.IntN(3000)) * time.Millisecond):
			}
			about.Blows.Store(false)
			stop()
		}

		By("calm")
		inprocess.Instead(clock.RealClock{}, inprocess.With(building), nil)
		builds := 0
		for _, name := range alive {
			p := &kibashipv1.Project{ObjectMeta: metav1.ObjectMeta{Name: name}}
			expect.Settles(ctx, p, kibashipv1.ProjectReady)
			applications := apiserver.List[kibashipv1.ApplicationList](ctx, client.InNamespace(kibashiptest.Namespace(name)))
			for i := range applications.Items {
				expect.Settles(ctx, &applications.Items[i], kibashipv1.ApplicationReady)
			}
			builds += oneRunEach(ctx, name)
		}
		for _, name := range doomed {
			expect.Gone(ctx, &kibashipv1.Project{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}
		Eventually(func(g Gomega) {
			g.Expect(runsOf(ctx, g, metav1.NamespaceAll)).To(HaveLen(builds), "runs without an owner are left over")
		}).Should(Succeed())
		AddReportEntry("The storm", fmt.Sprintf("%d projects live, %d builds, %d projects went", len(alive), builds, len(doomed)))
		expect.Settles(ctx, intruder, kibashipv1.ProjectFailed)
		expect.Deleted(ctx, intruder)
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(ns), ns)).To(Succeed())
		Expect(ns.ResourceVersion).To(Equal(version))

		By("the end")
		removed(ctx, alive)
		namespaces := apiserver.List[corev1.NamespaceList](ctx)
		for _, left := range namespaces.Items {
			if left.Name != ns.Name {
				Expect(left.Name).NotTo(HavePrefix("project-it-"))
			}
		}
	}, SpecTimeout(time.Hour))
})
