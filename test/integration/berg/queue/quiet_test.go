package queue

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/bulk"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/installed"
	"github.com/bergctf/berg-operator/test/lib/limits"
	"github.com/bergctf/berg-operator/test/lib/transport"
)

var _ = Describe("What has not changed costs no request", func() {
	DescribeTable("of every golden Challenge, at the second and at the third look", func(ctx context.Context, env map[string]string) {
		paths, err := filepath.Glob("../../../../internal/berg/challengeinstance/manifests/testdata/plan/*.yaml")
		Expect(err).NotTo(HaveOccurred())
		env["POD_NAMESPACE"] = installed.Namespace
		env["CHALLENGE_NESTED_SECCOMP_PROFILE"] = "berg-nested.json" // one of the Challenges is a jail
		bergtest.CapableNode(ctx)
		inprocess.Pause()
		stop := inprocess.Run(env, nil)
		DeferCleanup(func() { stop() }) // the last one ends what is left

		ns := bergtest.Namespace(ctx)
		var instances []*bergv1.ChallengeInstance
		for _, path := range paths {
			name := strings.TrimSuffix(filepath.Base(path), ".yaml")
			if strings.HasSuffix(name, ".golden") {
				continue
			}
			data, err := os.ReadFile(path)
			Expect(err).NotTo(HaveOccurred())
			bergtest.Challenge(ctx, ns, name, string(data))
			instances = append(instances, bergtest.Instance(ctx, ns, name))
		}
		Expect(len(instances)).To(BeNumerically(">", 10))
		for _, i := range instances {
			expect.Shows(ctx, i, bergv1.ConditionDeploymentsCreated, metav1.ConditionTrue, bergv1.ReasonCreated)
		}
		bergtest.Settle(ctx, ns)
		stop()
		for _, look := range []string{"second", "third"} {
			By(look)
			var seen *traffic
			seen, stop = lookAgain(ctx, env, clock.RealClock{}, len(instances))
			Expect(seen.writes()).To(BeEmpty())
			stop()
		}
		stop = inprocess.Run(env, nil)
	},
		Entry("as configured by default", map[string]string{}),
		Entry("with everything that is optional", map[string]string{
			"CHALLENGE_ADDITIONAL_HEADLESS_SERVICE": "true", "PULL_SECRET_NAME": "registry",
			"GATEWAY_DATAPLANE_NAMESPACES": "traefik,envoy", "CHALLENGE_MAX_LIFETIME": "12h", "CHALLENGE_START_DEADLINE": "6h",
		}),
	)

	It("where admission changes what was written, but for one look after a restart", func(ctx context.Context) {
		mirrorImages(ctx, "mirrored", "CREATE, UPDATE")
		i := bergtest.StartRunning(ctx, "mirrored", bergtest.OneContainer)
		var deployment appsv1.Deployment
		key := client.ObjectKey{Namespace: i.Status.Namespace, Name: "web"}
		Expect(k8s.Get(ctx, key, &deployment)).To(Succeed())
		Expect(deployment.Spec.Template.Spec.Containers[0].Image).To(Equal("mirror.example.com/web:1"))
		bergtest.Settle(ctx, i.Namespace)
		inprocess.Pause()

		seen, stop := lookAgain(ctx, nil, clock.RealClock{}, 1)
		DeferCleanup(stop)
		Expect(seen.writes()).To(Or(BeEmpty(), Equal(map[string]int{
			"PUT /apis/apps/v1/namespaces/" + key.Namespace + "/deployments/web": 1,
		})))
		seen.reset()
		for n := range 2 * 10 { // more than a contested object would be granted
			before := reconciles()
			challenged := apiserver.Get[bergv1.Challenge](ctx, client.ObjectKey{Namespace: i.Namespace, Name: "mirrored"})
			edited := client.MergeFrom(challenged.DeepCopy())
			challenged.Spec.Description = fmt.Sprint(n)
			Expect(k8s.Patch(ctx, challenged, edited)).To(Succeed())
			Eventually(reconciles).Should(BeNumerically(">", before))
		}
		writes := seen.writes()
		delete(writes, "PATCH /apis/berg.norelect.ch/v1/namespaces/"+i.Namespace+"/challenges/mirrored/status") // its new generation is checked
		Expect(writes).To(BeEmpty())
		expect.Shows(ctx, i, bergv1.ConditionDeploymentsCreated, metav1.ConditionTrue, bergv1.ReasonCreated)
	})

	It("where admission changed what was created and changes no update, after a new leader", func(ctx context.Context) {
		const many = 50
		mirrorImages(ctx, "created", "CREATE")
		ns := bergtest.Publish(ctx, "created", bergtest.OneContainer)
		instances := make([]*bergv1.ChallengeInstance, many)
		for n := range instances {
			instances[n] = bergtest.Instance(ctx, ns, "created")
		}
		generations := func() map[string]int64 {
			GinkgoHelper()
			found := map[string]int64{}
			for _, i := range instances {
				var deployment appsv1.Deployment
				Expect(k8s.Get(ctx, client.ObjectKey{Namespace: i.Status.Namespace, Name: "web"}, &deployment)).To(Succeed())
				Expect(deployment.Spec.Template.Spec.Containers[0].Image).To(Equal("mirror.example.com/web:1"))
				found[i.Status.Namespace] = deployment.Generation
			}
			return found
		}
		bergtest.AllRun(ctx, instances...)
		bergtest.Settle(ctx, ns)
		inprocess.Pause()
		before := generations()

		seen, stop := lookAgain(ctx, nil, clock.RealClock{}, many)
		DeferCleanup(stop)
		Expect(seen.writes()).To(BeEmpty())
		Expect(generations()).To(Equal(before), "Deployments were written, and their pods replaced")

		By("a change by hand, which the new leader still puts back")
		key := client.ObjectKey{Namespace: instances[0].Status.Namespace, Name: "web"}
		changed := apiserver.Get[appsv1.Deployment](ctx, key)
		Expect(k8s.Patch(ctx, changed, apiserver.RawPatch(`[{"op":"remove","path":"/spec/template/spec/containers/0/resources"}]`), client.FieldOwner("another-client"))).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(k8s.Get(ctx, key, changed)).To(Succeed())
			g.Expect(changed.Spec.Template.Spec.Containers[0].Resources.Limits).NotTo(BeEmpty())
		}).Should(Succeed())
	})

	// make quiet runs this with 500 instances and ten real minutes. By default
	// the operator is told that ten minutes have passed, and sees every object
	// again, as after a restart or when the informers list again.
	It("of instances that run, while time passes", func(ctx context.Context) {
		window, err := time.ParseDuration(cmp.Or(os.Getenv("QUIET"), "5s"))
		Expect(err).NotTo(HaveOccurred())
		many := bulk.Number("QUIET_INSTANCES", 30)

		ns := bergtest.Publish(ctx, "quiet", bergtest.OneContainer)
		instances := make([]*bergv1.ChallengeInstance, many)
		for n := range instances {
			instances[n] = bergtest.Instance(ctx, ns, "quiet", func(i *bergv1.ChallengeInstance) { i.Spec.Timeout = "12h" })
		}
		bergtest.AllRun(ctx, instances...)
		bergtest.Settle(ctx, ns)
		DeferCleanup(func(ctx context.Context) { // hundreds take minutes
			for _, i := range instances {
				Expect(client.IgnoreNotFound(k8s.Delete(ctx, i))).To(Succeed())
			}
			Eventually(func(g Gomega) {
				var list bergv1.ChallengeInstanceList
				g.Expect(k8s.List(ctx, &list, client.InNamespace(ns))).To(Succeed())
				g.Expect(list.Items).To(BeEmpty())
			}).WithTimeout(30 * time.Minute).WithPolling(time.Second).Should(Succeed())
		}, NodeTimeout(limits.Scaled(30*time.Minute)))
		inprocess.Pause()

		seen, stop := lookAgain(ctx, nil, clocktesting.NewFakePassiveClock(time.Now().Add(10*time.Minute)), many)
		DeferCleanup(stop)
		Expect(seen.writes()).To(BeEmpty(), "after ten minutes")
		seen.reset()
		Consistently(func() map[string]int { return seen.all("read", "write", "question") }).WithTimeout(window).WithPolling(time.Second).Should(BeEmpty())
		AddReportEntry(fmt.Sprintf("requests of %d running instances in %s", many, window), fmt.Sprint(seen.all("read", "write", "watch")))
	}, SpecTimeout(time.Hour))
})

// mirrorImages makes the API server rewrite the images of the Deployments of one
// Challenge in these operations, as admission webhooks of registries do.
func mirrorImages(ctx context.Context, challenge, operations string) {
	GinkgoHelper()
	rules := `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: integration-mirror}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
    - {apiGroups: [apps], apiVersions: [v1], resources: [deployments], operations: [` + operations + `]}
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: '[JSONPatch{op: "replace", path: "/spec/template/spec/containers/0/image", value: "mirror.example.com/web:1"}]'
`
	binding := `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: integration-mirror}
spec:
  policyName: integration-mirror
  matchResources: {namespaceSelector: {matchLabels: {berg.norelect.ch/challenge: ` + challenge + `}}}
`
	for _, text := range []string{rules, binding} {
		o := &unstructured.Unstructured{}
		Expect(yaml.Unmarshal([]byte(text), &o.Object)).To(Succeed())
		apiserver.Create(ctx, o)
	}
	// The API server takes a moment to see it.
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: apiserver.NamespacePrefix, Labels: map[string]string{bergv1.LabelChallenge: challenge}}}
	Expect(k8s.Create(ctx, ns)).To(Succeed())
	Eventually(func(g Gomega) {
		labels := map[string]string{"a": "b"}
		tried := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "tried"}}
		tried.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
		tried.Spec.Template.Labels = labels
		tried.Spec.Template.Spec.Containers = []corev1.Container{{Name: "web", Image: "example.com/web:1"}}
		g.Expect(k8s.Create(ctx, tried, client.DryRunAll)).To(Succeed())
		g.Expect(tried.Spec.Template.Spec.Containers[0].Image).To(Equal("mirror.example.com/web:1"))
	}).Should(Succeed())
}

// lookAgain starts an operator, waits until it has looked at every instance, and
// returns what it has asked of the API server.
func lookAgain(ctx context.Context, env map[string]string, now clock.PassiveClock, instances int) (seen *traffic, stop func()) {
	GinkgoHelper()
	before := reconciles()
	seen = &traffic{}
	stop = inprocess.RunAt(now, env, seen.wrap)
	last, since := before, time.Now()
	Eventually(func(g Gomega) {
		if now := reconciles(); now != last {
			last, since = now, time.Now()
		}
		g.Expect(last - before).To(BeNumerically(">=", instances))
		// One instance may have been looked at twice before another was at all.
		g.Expect(time.Since(since)).To(BeNumerically(">", time.Second))
	}).WithContext(ctx).Should(Succeed())
	return seen, stop
}

// reconciles returns how many passes over instances this process has ended.
func reconciles() float64 {
	GinkgoHelper()
	return inprocess.Metric("controller_runtime_reconcile_total", "controller", "challengeinstance")
}

// traffic counts what an operator asks of the API server, by verb and path.
type traffic struct {
	mu    sync.Mutex
	count map[string]map[string]int // by class, then by verb and path
}

func (s *traffic) wrap(next http.RoundTripper) http.RoundTripper {
	return transport.Showing(func(r *http.Request) {
		class := "write"
		switch {
		case r.URL.Query().Get("watch") == "true":
			class = "watch"
		case r.Method == http.MethodGet:
			class = "read"
		case transport.Asks(r): // a new process asks which optional rights it has
			class = "question"
		}
		s.add(class, r.Method+" "+r.URL.Path)
	})(next)
}

func (s *traffic) add(class, request string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count == nil {
		s.count = map[string]map[string]int{}
	}
	if s.count[class] == nil {
		s.count[class] = map[string]int{}
	}
	s.count[class][request]++
}

func (s *traffic) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count = nil
}

func (s *traffic) all(classes ...string) map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]int{}
	for _, class := range classes {
		maps.Copy(out, s.count[class])
	}
	return out
}

func (s *traffic) writes() map[string]int { return s.all("write") }
