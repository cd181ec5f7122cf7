package plugin

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"runtime"
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
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/bulk"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/berg/plan"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/limits"
	"github.com/bergctf/berg-operator/test/lib/transport"
)

// stored creates instances with the status of started ones while the operator is paused, so that only the
// plugin is measured or interrupted.
func stored(ctx context.Context, ns string, n int) {
	GinkgoHelper()
	elsewhere := bergtest.Namespace(ctx)
	bergtest.Challenge(ctx, elsewhere, "any", bergtest.OneContainer)
	model := bergtest.Instance(ctx, elsewhere, "any")
	expect.Reaches(ctx, model, bergv1.PhaseRunning)
	inprocess.Pause()
	DeferCleanup(func(ctx context.Context) {
		Expect(apiserver.Client.DeleteAllOf(ctx, &bergv1.ChallengeInstance{}, client.InNamespace(ns))).To(Succeed())
	})
	started := metav1.NewTime(time.Now().Truncate(time.Second))
	var group sync.WaitGroup
	for worker := range 8 {
		group.Go(func() {
			defer GinkgoRecover()
			for k := worker; k < n; k += 8 {
				i := bergtest.Instance(ctx, ns, "any", func(i *bergv1.ChallengeInstance) { i.Spec.Timeout = "2h" })
				before := i.DeepCopy()
				i.Status = *model.Status.DeepCopy()
				i.Status.InstanceID, i.Status.Namespace = uuid.NewString(), manifests.NamespaceName(i.Spec.OwnerID)
				i.Status.ReadyAt, i.Status.ObservedGeneration = &started, i.Generation
				i.Status.StartedAt, i.Status.ExpiresAt = &started, &metav1.Time{Time: started.Add(2 * time.Hour)}
				Expect(apiserver.Client.Status().Patch(ctx, i, client.MergeFrom(before))).To(Succeed())
			}
		})
	}
	group.Wait()
}

// timeouts counts instances by their timeout.
func timeouts(ctx context.Context, ns string) map[string]int {
	GinkgoHelper()
	var all bergv1.ChallengeInstanceList
	Expect(apiserver.Client.List(ctx, &all, client.InNamespace(ns))).To(Succeed())
	out := map[string]int{}
	for _, i := range all.Items {
		out[i.Spec.Timeout]++
	}
	return out
}

var _ = Describe("extend", func() {
	It("extends started instances once for each ID", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		bergtest.Challenge(ctx, ns, "web", bergtest.OneContainer)
		i := bergtest.Instance(ctx, ns, "web")
		expect.Reaches(ctx, i, bergv1.PhaseRunning)
		before := i.Status.ExpiresAt.Time
		waits := bergtest.Instance(ctx, ns, "web", bergtest.OwnedBy(i.Spec.OwnerID))

		r := run(ctx, "extend", "30m", "--all", "-n", ns, "-o", "json")
		Expect(r.code).To(Equal(0))
		report := decode[bulk.Report](r.out)
		Expect(report.Done).To(Equal(1))
		Expect(report.Skipped).To(ConsistOf(HaveField("Name", waits.Name)))
		Eventually(func(g Gomega) {
			g.Expect(apiserver.Client.Get(ctx, client.ObjectKeyFromObject(i), i)).To(Succeed())
			g.Expect(i.Status.ExpiresAt.Sub(before)).To(Equal(30 * time.Minute))
		}).Should(Succeed())

		Expect(decode[bulk.Report](run(ctx, "extend", "30m", "--all", "-n", ns, "--id", report.ID, "-o", "json").out).Already).To(Equal(1))
		Expect(run(ctx, "extend", "30m", i.Name, "-n", ns).out).To(ContainSubstring("extended 1 of 1"))
		Expect(timeouts(ctx, ns)).To(HaveKeyWithValue("10800s", 1))
		for _, wrong := range [][]string{{"extend"}, {"extend", "soon", "--all"}, {"extend", "-30m", "--all"}, {"extend", "30m"}, {"extend", "30m", "a", "--all"}, {"extend", "--until", "nonsense", "--all", "--dry-run"}, {"nonsense"}, {"list", "--nonsense"}} {
			Expect(run(ctx, append(wrong, "-n", ns)...).code).To(Equal(2), strings.Join(wrong, " "))
		}
	})

	It("continues after a lost connection, and extends nothing twice", func(ctx context.Context) {
		const n = 120
		ns := bergtest.Namespace(ctx)
		stored(ctx, ns, n)
		connection := newGate(ctx)
		t := inTerminal(ctx, 100, nil, "--kubeconfig", connection.kubeconfig, "extend", "30m", "--all", "-n", ns, "--pace", "60")
		Eventually(t.Text).Should(MatchRegexp(`[1-9]\d*/120`))
		connection.cut()
		Eventually(t.Text).Should(ContainSubstring("no connection, retrying"))
		connection.mend()
		Expect(t.Code()).To(Equal(0))
		Expect(timeouts(ctx, ns)).To(Equal(map[string]int{"9000s": n}))
	})

	It("waits for the API server also before its first request, as every command can", func(ctx context.Context) {
		const n = 5
		ns := bergtest.Namespace(ctx)
		stored(ctx, ns, n)
		for _, args := range [][]string{{"extend", "30m", "--all"}, {"list", "--retry-timeout", "5m"}, {"end", "--all", "--yes"}} {
			connection := newGate(ctx)
			connection.cut()
			t := inTerminal(ctx, 100, nil, append([]string{"--kubeconfig", connection.kubeconfig, "-n", ns}, args...)...)
			Eventually(t.Text).Should(ContainSubstring("no connection, retrying"), args[0])
			connection.mend()
			Expect(t.Code()).To(Equal(0), args[0])
		}
		Expect(timeouts(ctx, ns)).To(Equal(map[string]int{"9000s": n}))
	})

	It("extends the rest when it is repeated after an interruption", func(ctx context.Context) {
		const n = 60
		ns := bergtest.Namespace(ctx)
		stored(ctx, ns, n)
		t := inTerminal(ctx, 100, nil, "extend", "30m", "--all", "-n", ns, "--pace", "20", "--id", "tonight")
		Eventually(t.Text).Should(MatchRegexp(`[1-9]\d*/60`))
		t.Type("\x03")
		Expect(t.Code()).To(Equal(130))
		Expect(t.Text()).To(ContainSubstring("--id tonight"))
		done := timeouts(ctx, ns)["9000s"]
		Expect(done).To(And(BeNumerically(">", 0), BeNumerically("<", n)))
		r := decode[bulk.Report](run(ctx, "extend", "30m", "--all", "-n", ns, "--id", "tonight", "-o", "json").out)
		Expect(r.Already).To(Equal(done))
		Expect(r.Done).To(Equal(n - done))
		Expect(timeouts(ctx, ns)).To(Equal(map[string]int{"9000s": n}))
	})

	It("says how to continue when the connection does not come back", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		stored(ctx, ns, 40)
		connection := newGate(ctx)
		t := inTerminal(ctx, 200, []string{"NO_COLOR=1"}, "--kubeconfig", connection.kubeconfig, "extend", "30m", "--all", "-n", ns, "--pace", "10", "--retry-timeout", "3s")
		Eventually(t.Text).Should(MatchRegexp(`[1-9]\d*/40`))
		connection.cut()
		Expect(t.Code()).To(Equal(8))
		Expect(t.Text()).To(MatchRegexp(`Repeat the command with --id \S+: it extends the rest`))
	})

	It("extends 1,000 instances about as fast as a bare client patches them", func(ctx context.Context) {
		n, err := strconv.Atoi(os.Getenv("EXTEND"))
		if err != nil {
			Skip("EXTEND is not set: make plugin-extend")
		}
		const rounds, maxRatio = 5, 1.3
		ns := bergtest.Namespace(ctx)
		stored(ctx, ns, n)
		var names []string
		for i := range instancesOf(ctx, ns) {
			names = append(names, i)
		}
		var bare, plugin []float64
		for round := range rounds {
			measure := []func(){
				func() { bare = append(bare, patchAll(ctx, ns, names, fmt.Sprintf("%dm", 300+round))) },
				func() {
					began := time.Now()
					r := decode[bulk.Report](run(ctx, "extend", "1m", "--all", "-n", ns, "-o", "json").out)
					plugin = append(plugin, time.Since(began).Seconds())
					Expect(r.Done).To(Equal(n))
				},
			}
			if round%2 == 1 {
				slices.Reverse(measure)
			}
			for _, one := range measure {
				one()
			}
		}
		ratios := make([]float64, rounds)
		for i := range ratios {
			ratios[i] = plugin[i] / bare[i]
		}
		AddReportEntry("extend", fmt.Sprintf("%d instances, %d CPUs: plugin %.2f s, bare client %.2f s, ratio %.2f (medians of %d rounds; ratios %.2f)",
			n, runtime.NumCPU(), median(plugin), median(bare), median(ratios), rounds, ratios))
		Expect(median(ratios)).To(BeNumerically("<=", maxRatio))
	})
})

func instancesOf(ctx context.Context, ns string) map[string]bool {
	GinkgoHelper()
	out := map[string]bool{}
	for _, name := range apiserver.Names(ctx, &bergv1.ChallengeInstanceList{}, client.InNamespace(ns)) {
		out[name] = true
	}
	return out
}

func median(all []float64) float64 {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}

// patchAll is the bare client: it knows what to write, and sends as many requests concurrently.
func patchAll(ctx context.Context, ns string, names []string, timeout string) (seconds float64) {
	GinkgoHelper()
	config := rest.CopyConfig(apiserver.Config)
	config.QPS = -1
	bare, err := client.New(config, client.Options{Scheme: apiserver.Client.Scheme()})
	Expect(err).NotTo(HaveOccurred())
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"timeout":%q}}`, timeout))
	began := time.Now()
	queue := make(chan string)
	var group sync.WaitGroup
	var failed atomic.Int64
	for range bulk.Workers {
		group.Go(func() {
			for name := range queue {
				if bare.Patch(ctx, &bergv1.ChallengeInstance{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}, patch) != nil {
					failed.Add(1)
				}
			}
		})
	}
	for _, name := range names {
		queue <- name
	}
	close(queue)
	group.Wait()
	Expect(failed.Load()).To(BeZero())
	return time.Since(began).Seconds()
}

var _ = Describe("plan", func() {
	It("predicts what instances need, within 15 percent", func(ctx context.Context) {
		const each = 12
		ns := bergtest.Namespace(ctx)
		specs := map[string]string{"one": bergtest.OneContainer, "every": bergtest.EveryKind, "two": `
containers:
- {hostname: a, image: a, ports: [{port: 1, type: publicPort}], resourceRequests: {cpu: "0.25", memory: 300Mi}}
- {hostname: b, image: b, resourceLimits: {memory: 64Mi}, dynamicFlag: {content: {path: /flag}}}`}
		for name, spec := range specs {
			bergtest.Challenge(ctx, ns, name, spec)
		}
		// On a busy machine an instance takes longer to start, and each pause is one more status and event. The plan is for
		// an operator that has time.
		const statuses, notes = 3, 2
		var mu sync.Mutex
		writes, events, ofStatus := 0, 0, map[string]int{}
		inprocess.Restart(map[string]string{"PULL_SECRET_NAME": ""}, transport.Showing(func(r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			switch path := r.URL.Path; {
			case r.Method == http.MethodGet, strings.Contains(path, "/leases/"):
			case strings.Contains(path, "/events"):
				events++
			case strings.HasSuffix(path, "/status"):
				ofStatus[path]++
			default:
				writes++
			}
		}))
		counted := func() float64 {
			mu.Lock()
			defer mu.Unlock()
			n := writes + min(events, notes*each*len(specs))
			for path, of := range ofStatus {
				if strings.Contains(path, "/challengeinstances/") {
					n += min(of, statuses)
				}
			}
			return float64(n)
		}
		r := run(ctx, "plan", "--players", strconv.Itoa(2*each*len(specs)), "--playing", "50%", "--start", "1m", "-n", ns, "-o", "json")
		Expect(r.code).To(BeElementOf(0, 4))
		planned := decode[plan.Result](r.out)
		Expect(planned.Instances).To(Equal(each * len(specs)))
		// The nodes of the test cluster hold everything: smaller ones show how well the plan packs.
		small := corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("2Gi"),
			corev1.ResourceEphemeralStorage: resource.MustParse("10Gi"), corev1.ResourcePods: resource.MustParse("30"),
		}
		onSmall := decode[plan.Result](run(ctx, "plan", "--players", strconv.Itoa(2*each*len(specs)), "--playing", "50%", "-n", ns, "-o", "json",
			"--node-cpu", "1", "--node-memory", "2Gi", "--node-disk", "10Gi", "--node-pods", "30", "--node-overhead", "0").out)

		mu.Lock()
		writes, events = 0, 0
		clear(ofStatus)
		mu.Unlock()
		var all []*bergv1.ChallengeInstance
		for name := range specs {
			all = append(all, bergtest.Several(ctx, ns, name, each)...)
		}
		var cpu, memory, disk float64
		var everyPod []corev1.Pod
		made, ports, routes := 0, 0, 0
		for _, i := range all {
			expect.Reaches(ctx, i, bergv1.PhaseRunning)
			var list corev1.PodList
			Expect(apiserver.Client.List(ctx, &list, client.InNamespace(i.Status.Namespace))).To(Succeed())
			made += len(list.Items)
			everyPod = append(everyPod, list.Items...)
			for _, p := range list.Items {
				for _, c := range p.Spec.Containers {
					cpu += c.Resources.Requests.Cpu().AsApproximateFloat64()
					memory += c.Resources.Requests.Memory().AsApproximateFloat64() / (1 << 30)
					disk += c.Resources.Requests.StorageEphemeral().AsApproximateFloat64() / (1 << 30)
				}
			}
			var services corev1.ServiceList
			Expect(apiserver.Client.List(ctx, &services, client.InNamespace(i.Status.Namespace))).To(Succeed())
			for _, s := range services.Items {
				taken := map[int32]bool{}
				for _, p := range s.Spec.Ports {
					if p.NodePort != 0 {
						taken[p.NodePort] = true
					}
				}
				ports += len(taken)
			}
			routes += len(apiserver.Names(ctx, &gatewayv1.HTTPRouteList{}, client.InNamespace(i.Status.Namespace))) +
				len(apiserver.Names(ctx, &gatewayv1.TLSRouteList{}, client.InNamespace(i.Status.Namespace)))
		}
		Eventually(func(g Gomega) { // events are sent after up to ten seconds
			g.Expect(counted()).To(near(planned.RequestsPerInstance * float64(len(all))))
			g.Expect(planned.RequestsPerSecond).To(near(counted() / time.Minute.Seconds()))
		}).WithTimeout(limits.Wait).Should(Succeed())
		var nodes corev1.NodeList
		Expect(apiserver.Client.List(ctx, &nodes)).To(Succeed())
		for what, pair := range map[string][2]float64{
			"nodes":       {float64(planned.Nodes), float64(firstFit(everyPod, nodes.Items[0].Status.Allocatable))},
			"small nodes": {float64(onSmall.Nodes), float64(firstFit(everyPod, small))},
			"pods":        {float64(planned.Pods), float64(made)}, "CPU": {planned.CPU, cpu}, "memory": {planned.MemoryGiB, memory},
			"disk": {planned.DiskGiB, disk}, "node ports": {float64(planned.NodePorts), float64(ports)}, "routes": {float64(planned.Routes), float64(routes)},
		} {
			Expect(pair[0]).To(near(pair[1]), what)
		}
		AddReportEntry("plan", fmt.Sprintf("%d instances: planned %.1f requests each, counted %.1f; small nodes %d and %d, pods %d and %d, CPU %.2f and %.2f, memory %.2f and %.2f GiB, node ports %d and %d",
			len(all), planned.RequestsPerInstance, counted()/float64(len(all)), onSmall.Nodes, firstFit(everyPod, small), planned.Pods, made, planned.CPU, cpu, planned.MemoryGiB, memory, planned.NodePorts, ports))
	})

	It("needs no cluster for files", func(ctx context.Context) {
		r := feed(ctx, "kind: Challenge\napiVersion: berg.norelect.ch/v1\nmetadata: {name: a}\nspec: {containers: [{hostname: a, image: a, ports: [{port: 1, type: publicPort}]}]}\n",
			"plan", "-f", "-", "--players", "3000", "--kubeconfig", "/nonexistent", "--price", "0.5", "--currency", "EUR")
		Expect(r.code).To(Equal(4), "2,768 node ports are not enough")
		Expect(r.out).To(And(ContainSubstring("EUR"), MatchRegexp(`2768\s+node ports\s+108%`)))
		Expect(feed(ctx, "", "plan", "-f", "-", "--players", "1").code).To(Equal(3))
		impossible := feed(ctx, "kind: Challenge\napiVersion: berg.norelect.ch/v1\nmetadata: {name: huge}\nspec: {containers: [{hostname: a, image: a, resourceRequests: {cpu: \"99\"}, resourceLimits: {cpu: \"99\"}}]}\n",
			"plan", "-f", "-", "--players", "3", "--kubeconfig", "/nonexistent", "--price", "0.5", "-o", "json")
		Expect(impossible.code).To(Equal(4))
		Expect(decode[map[string]any](impossible.out)).To(And(HaveKeyWithValue("impossible", ContainSubstring("huge")), Not(HaveKey("nodes")), Not(HaveKey("cost"))))
		Expect(run(ctx, "plan").code).To(Equal(2))
		Expect(run(ctx, "plan", "--players", "10", "--playing", "200%").code).To(Equal(2))
	})
})

// firstFit returns how many nodes of a size hold the pods, each on the first node with enough resources.
func firstFit(all []corev1.Pod, size corev1.ResourceList) int {
	GinkgoHelper()
	var free []corev1.ResourceList
	for _, p := range all {
		needs := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")}
		for _, c := range p.Spec.Containers {
			for name, amount := range c.Resources.Requests {
				sum := needs[name]
				sum.Add(amount)
				needs[name] = sum
			}
		}
		at := slices.IndexFunc(free, func(has corev1.ResourceList) bool { return takes(has, needs) })
		if at < 0 {
			at = len(free)
			free = append(free, size.DeepCopy())
			Expect(takes(size, needs)).To(BeTrue(), p.Name+" fits nowhere")
		}
		for name, amount := range needs {
			left := free[at][name]
			left.Sub(amount)
			free[at][name] = left
		}
	}
	return len(free)
}

func takes(has, needs corev1.ResourceList) bool {
	for name, amount := range needs {
		if left := has[name]; left.Cmp(amount) < 0 {
			return false
		}
	}
	return true
}

// near matches a figure within 15 percent.
func near(of float64) OmegaMatcher { return BeNumerically("~", of, 0.15*of+1e-9) }
