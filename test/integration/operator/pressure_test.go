package operator

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/launch"
	"github.com/bergctf/berg-operator/test/lib/limits"
	"github.com/bergctf/berg-operator/test/lib/transport"
	"github.com/bergctf/berg-operator/test/measure/machine"
)

// make pressure runs the specs of crowds with PRESSURE instances.
var _ = Describe("Pressure", func() {
	var many int
	BeforeEach(func() {
		var err error
		many, err = strconv.Atoi(cmp.Or(os.Getenv("PRESSURE"), "30"))
		Expect(err).NotTo(HaveOccurred())
	})

	Context("on an operator as a process", Ordered, ContinueOnFailure, func() {
		withProcesses()

		It("by one instance that always fails keeps no other waiting, and is tried with growing pauses", func(ctx context.Context) {
			ns := bergtest.Publish(ctx, "good", bergtest.OneContainer)
			p := start(ctx).leads(ctx)
			owner := uuid.NewString()
			lift := bergtest.Refuse(ctx, owner, "apps", "deployments", "CREATE")
			began := time.Now()
			poison := bergtest.Instance(ctx, ns, "good", func(i *bergv1.ChallengeInstance) { i.Spec.OwnerID = owner })
			expect.Shows(ctx, poison, bergv1.ConditionDeploymentsCreated, metav1.ConditionFalse, bergv1.ReasonRefused)
			good := bergtest.Several(ctx, ns, "good", many)
			for _, i := range good {
				reachesInCrowd(ctx, i, bergv1.PhaseRunning)
			}
			took := time.Since(began)
			expect.Shows(ctx, poison, bergv1.ConditionDeploymentsCreated, metav1.ConditionFalse, bergv1.ReasonRefused)
			expect.Says(ctx, poison, apiserver.Refusal)
			tries := 0
			for _, w := range p.gate.work(began) {
				if w.Method == http.MethodPost && strings.HasSuffix(w.Path, owner+"/deployments") {
					tries++
				}
			}
			// From 100 ms on the pauses double up to a minute, and its own objects, as they
			// appear, make the operator look sooner.
			Expect(tries).To(BeNumerically("<=", 20+int(took.Minutes())), "tries in %s", took)
			AddReportEntry("poison", fmt.Sprintf("%d good instances ran after %s; the poisonous one was tried %d times", many, took.Round(time.Second), tries))
			lift()
			expect.Reaches(ctx, poison, bergv1.PhaseRunning)
			Expect(k8s.DeleteAllOf(ctx, &bergv1.ChallengeInstance{}, client.InNamespace(ns))).To(Succeed())
			for _, i := range good {
				bergtest.GoneWithin(ctx, i, crowdLimit)
			}
		}, SpecTimeout(time.Hour))

		It("by namespaces that a foreign finalizer holds costs no request, and not much memory", func(ctx context.Context) {
			ns := bergtest.Publish(ctx, "held", bergtest.OneContainer)
			p := start(ctx).leads(ctx)
			stuck := bergtest.Several(ctx, ns, "held", many)
			for _, i := range stuck {
				reachesInCrowd(ctx, i, bergv1.PhaseRunning)
			}
			before := int64(p.memory().Resident)
			finalizers := func(ctx context.Context, i *bergv1.ChallengeInstance, value string) error {
				namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "challenge-" + i.Spec.OwnerID}}
				return client.IgnoreNotFound(k8s.Patch(ctx, namespace, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":`+value+`}}`))))
			}
			release := func(ctx context.Context) {
				for _, i := range stuck {
					Expect(finalizers(ctx, i, "[]")).To(Succeed())
				}
			}
			DeferCleanup(release, NodeTimeout(limits.Scaled(20*time.Minute)))
			for _, i := range stuck {
				Expect(finalizers(ctx, i, `["example.com/hold"]`)).To(Succeed())
				Expect(k8s.Delete(ctx, i)).To(Succeed())
			}
			for _, i := range stuck {
				Eventually(func(g Gomega) {
					g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(i), i)).To(Succeed())
					g.Expect(bergtest.ReasonOf(i, bergv1.ConditionNamespaceDeleted)).To(Equal(bergv1.ReasonDeletionBlocked))
				}).WithTimeout(20 * time.Minute).Should(Succeed())
			}
			expect.Says(ctx, stuck[0], "example.com/hold")

			began := time.Now()
			i := bergtest.Running(ctx, ns, "held")
			others := slices.DeleteFunc(p.gate.work(began), func(w launch.Write) bool {
				return strings.Contains(w.Path, i.Spec.OwnerID) || strings.Contains(w.Path, i.Name) || strings.HasSuffix(w.Path, "/namespaces")
			})
			Expect(others).To(BeEmpty(), "writes about what cannot continue")
			Expect(k8s.Patch(ctx, i, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"timeout":"1s"}}`)))).To(Succeed())
			bergtest.Gone(ctx, i)
			after := int64(p.memory().Resident)
			AddReportEntry("stuck", fmt.Sprintf("%d namespaces are held; the operator has %d MiB, and had %d MiB when their instances ran", many, after>>20, before>>20))
			Expect(after).To(BeNumerically("<", 512<<20), "half the memory limit of config/manager")
			release(ctx)
			for _, i := range stuck {
				bergtest.GoneWithin(ctx, i, crowdLimit)
			}
		}, SpecTimeout(time.Hour))

		It("of a memory limit that is near makes it collect garbage more often, and continue", func(ctx context.Context) {
			ns := bergtest.Publish(ctx, "near", bergtest.OneContainer)
			// What an operator without instances needs, and what its caches hold of many.
			limit := 40<<20 + many*13<<10
			p := start(ctx, "GOMEMLIMIT="+strconv.Itoa(limit)).leads(ctx)
			all := bergtest.Several(ctx, ns, "near", many)
			for _, i := range all {
				reachesInCrowd(ctx, i, bergv1.PhaseRunning)
			}
			most := int64(p.memory().Anonymous)
			Expect(k8s.DeleteAllOf(ctx, &bergv1.ChallengeInstance{}, client.InNamespace(ns))).To(Succeed())
			for _, i := range all {
				bergtest.GoneWithin(ctx, i, crowdLimit)
			}
			most = max(most, int64(p.memory().Anonymous))
			AddReportEntry("memory", fmt.Sprintf("%d instances came and went with a limit of %d MiB; at most %d MiB were used", many, limit>>20, most>>20))
			// A tenth is what the container has beyond it.
			Expect(most).To(BeNumerically("<", limit*10/9))
		}, SpecTimeout(time.Hour))
	})

	It("by the priority and fairness of the API server delays, and loses nothing", func(ctx context.Context) {
		ns := bergtest.Publish(ctx, "throttled", bergtest.OneContainer)
		var refused atomic.Int64
		inprocess.Instead(clock.RealClock{}, nil, transport.Through(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			response, err := next.RoundTrip(r)
			if err == nil && response.StatusCode == http.StatusTooManyRequests {
				refused.Add(1)
			}
			return response, err
		}))
		lift := throttle(ctx)
		all := bergtest.Several(ctx, ns, "throttled", 10)
		Eventually(refused.Load).Should(BeNumerically(">", len(all)), "the API server refuses nothing")
		lift()
		bergtest.AllRun(ctx, all...)
		Expect(k8s.DeleteAllOf(ctx, &bergv1.ChallengeInstance{}, client.InNamespace(ns))).To(Succeed())
		bergtest.AllGone(ctx, all...)
		AddReportEntry("throttled", fmt.Sprintf("%d requests were refused", refused.Load()))
	}, SpecTimeout(limits.Scaled(10*time.Minute)))

	It("of a database that is full is waited out", func(ctx context.Context) {
		ns := bergtest.Publish(ctx, "full", bergtest.OneContainer)
		running, waiting := bergtest.Instance(ctx, ns, "full"), bergtest.Instance(ctx, ns, "full")
		expect.Reaches(ctx, running, bergv1.PhaseRunning)
		expect.Reaches(ctx, waiting, bergv1.PhaseRunning)
		inprocess.Pause()
		begun := bergtest.Instance(ctx, ns, "full")
		Expect(k8s.Patch(ctx, running, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"timeout":"1s"}}`)))).To(Succeed())

		DeferCleanup(quota, "DEACTIVATE")
		quota(ctx, "ACTIVATE")
		Eventually(func() error {
			return k8s.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "one-more"}}, client.DryRunAll)
		}).Should(Succeed(), "a dry run writes nothing")
		Eventually(func() error {
			return k8s.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, GenerateName: "one-more-"}})
		}).Should(MatchError(ContainSubstring("database space exceeded")))
		var tries atomic.Int64
		inprocess.Instead(clock.RealClock{}, nil, transport.Showing(func(r *http.Request) {
			if r.Method != http.MethodGet {
				tries.Add(1)
			}
		}))
		Eventually(tries.Load).Should(BeNumerically(">", 3), "the operator does not try")
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(begun), begun)).To(Succeed())
		Expect(begun.Status.StartedAt).To(BeNil())

		quota(ctx, "DEACTIVATE")
		expect.Reaches(ctx, begun, bergv1.PhaseRunning)
		bergtest.Gone(ctx, running)
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(waiting), waiting)).To(Succeed())
		Expect(waiting.Status.Phase).To(Equal(bergv1.PhaseRunning))
	}, SpecTimeout(limits.Scaled(10*time.Minute)))
})

// crowdLimit is how long one of thousands may take.
var crowdLimit = limits.Scaled(30 * time.Minute)

// reachesInCrowd is reaches for one of thousands.
func reachesInCrowd(ctx context.Context, i *bergv1.ChallengeInstance, phase bergv1.Phase) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(i), i)).To(Succeed())
		g.Expect(i.Status.Phase).To(Equal(phase), expect.Conditions(i))
	}).WithTimeout(crowdLimit).Should(Succeed())
}

// memory returns what the process holds.
func (p *process) memory() machine.Memory {
	GinkgoHelper()
	m, err := machine.ReadMemory(p.PID())
	Expect(err).NotTo(HaveOccurred())
	return m
}

// throttle gives the operator no share of the API server and no queue, until lift is
// called.
func throttle(ctx context.Context) (lift func()) {
	GinkgoHelper()
	level := apiserver.Object(`
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: PriorityLevelConfiguration
metadata: {name: integration-throttle}
spec:
  type: Limited
  limited: {nominalConcurrencyShares: 0, lendablePercent: 0, borrowingLimitPercent: 0, limitResponse: {type: Reject}}
`)
	schema := apiserver.Object(`
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata: {name: integration-throttle}
spec:
  priorityLevelConfiguration: {name: integration-throttle}
  matchingPrecedence: 2
  rules:
  - subjects: [{kind: User, user: {name: "` + apiserver.OperatorUser + `"}}]
    resourceRules: [{verbs: ["*"], apiGroups: ["*"], resources: ["*"], clusterScope: true, namespaces: ["*"]}]
`)
	for _, o := range []*unstructured.Unstructured{level, schema} {
		Expect(k8s.Create(ctx, o)).To(Succeed())
	}
	lift = func() {
		for _, o := range []*unstructured.Unstructured{schema, level} {
			Expect(client.IgnoreNotFound(k8s.Delete(context.Background(), o))).To(Succeed())
		}
	}
	DeferCleanup(lift)
	return lift
}

// quota makes etcd behave as when its quota is used up (ACTIVATE), or as always
// (DEACTIVATE).
func quota(ctx context.Context, action string) {
	GinkgoHelper()
	state := filepath.Dir(filepath.Dir(os.Getenv("KUBECONFIG")))
	pair, err := tls.LoadX509KeyPair(filepath.Join(state, "pki", "etcd-client.crt"), filepath.Join(state, "pki", "etcd-client.key"))
	Expect(err).NotTo(HaveOccurred())
	authority, err := os.ReadFile(filepath.Join(state, "pki", "etcd-ca.crt"))
	Expect(err).NotTo(HaveOccurred())
	trusted := x509.NewCertPool()
	Expect(trusted.AppendCertsFromPEM(authority)).To(BeTrue())
	etcd := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: trusted}, DisableKeepAlives: true,
	}}
	body := fmt.Sprintf(`{"action":%q,"memberID":"0","alarm":"NOSPACE"}`, action)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, etcdAddress(state)+"/v3/maintenance/alarm", strings.NewReader(body))
	Expect(err).NotTo(HaveOccurred())
	response, err := etcd.Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	Expect(response.StatusCode).To(Equal(http.StatusOK))
}

// etcdAddress is where the etcd of a cluster of test/cluster listens.
func etcdAddress(state string) string {
	GinkgoHelper()
	raw, err := os.ReadFile(filepath.Join(state, "cluster.json"))
	Expect(err).NotTo(HaveOccurred())
	var cluster struct{ BasePort int }
	Expect(json.Unmarshal(raw, &cluster)).To(Succeed())
	Expect(cluster.BasePort).NotTo(BeZero(), "a cluster with simulated nodes")
	return fmt.Sprintf("https://127.0.0.1:%d", cluster.BasePort+1)
}
