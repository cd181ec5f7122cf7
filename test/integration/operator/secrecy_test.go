package operator

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"syscall"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/limits"
)

// marker is the middle of a flag: no notation but base64 and hex changes it, and
// nothing else in the cluster looks like it. A flag too short to have one cannot
// be told from ordinary text; nothing treats it differently.
func marker() string { return strings.ReplaceAll(uuid.NewString(), "-", "")[:20] }

var _ = Describe("Flags", Ordered, ContinueOnFailure, func() {
	withProcesses()

	It("are only where the player finds them, also after failures", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		var markers []string
		flagged := func(around string, modify ...func(*bergv1.ChallengeInstance)) func(*bergv1.ChallengeInstance) {
			return func(i *bergv1.ChallengeInstance) {
				m := marker()
				markers = append(markers, m)
				i.Spec.Flag = fmt.Sprintf(around, m)
				for _, f := range modify {
					f(i)
				}
			}
		}
		verbose := "LOG_LEVEL=7"
		leader := start(ctx, verbose).leads(ctx).ready()
		standby := start(ctx, verbose).ready()
		processes := []*process{leader, standby}

		By("flags of every kind, in every form")
		bergtest.Challenge(ctx, ns, "every-kind", bergtest.EveryKind)
		var running []*bergv1.ChallengeInstance
		for _, around := range []string{
			"flag{%s}",
			"flag{grüezi_🐐\nzweite Zeile_%s\n\tdritte}",
			`flag{<&>"'\$(HOME)$$%%_%s_$%%}`,
			"flag{" + strings.Repeat("x", 490) + "%s" + strings.Repeat("y", 508) + "}", // 1,024 bytes
		} {
			running = append(running, bergtest.Instance(ctx, ns, "every-kind", flagged(around)))
		}
		bergtest.AllRun(ctx, running...)

		By("an API server that repeats what it refuses, or warns of")
		repeat := `'I do not like ' + object.spec.template.spec.containers[0].env.map(e, e.name + '=' + e.?value.orValue('')).join(', ')`
		admissionSays(ctx, "refused", "Deny", repeat)
		admissionSays(ctx, "warned-of", "Warn", repeat)
		variable := `containers: [{hostname: web, image: "example.com/web:1", dynamicFlag: {env: {name: FLAG}}}]`
		bergtest.Challenge(ctx, ns, "refused", variable)
		bergtest.Challenge(ctx, ns, "warned-of", variable)
		refused := bergtest.Instance(ctx, ns, "refused", flagged("flag{<%s>$}"))
		expect.Shows(ctx, refused, bergv1.ConditionDeploymentsCreated, metav1.ConditionFalse, bergv1.ReasonRefused)
		expect.Says(ctx, refused, "FLAG=<flag>", "nothing was repeated: this proves nothing")
		Eventually(list).WithArguments(ctx, &corev1.EventList{}, whole).Should(ContainSubstring(`FLAG=\u003cflag\u003e`), "no event repeats it")
		expect.Reaches(ctx, bergtest.Instance(ctx, ns, "warned-of", flagged("flag{%s}")), bergv1.PhaseRunning)

		By("a quota, and drift")
		full := running[0]
		bergtest.UseUp(ctx, full.Status.Namespace)
		for _, lost := range []client.Object{
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: full.Status.Namespace, Name: "flag-content"}},
			&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: full.Status.Namespace, Name: "db"}},
		} {
			Expect(k8s.Delete(ctx, lost)).To(Succeed())
		}
		expect.Shows(ctx, full, bergv1.ConditionDeploymentsCreated, metav1.ConditionFalse, bergv1.ReasonRefused)
		changed := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: running[1].Status.Namespace, Name: "db"}}
		for range 10 {
			Expect(k8s.Patch(ctx, changed, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":2}}`)))).To(Succeed())
		}

		By("a Challenge that is itself wrong, and says so with the flag")
		wrong := marker()
		markers = append(markers, wrong)
		bergtest.Challenge(ctx, ns, "wrong", fmt.Sprintf(`flag: f%[1]s
containers: [{hostname: f%[1]s, image: i}, {hostname: f%[1]s-headless, image: i}]`, wrong))
		expect.Reaches(ctx, bergtest.Instance(ctx, ns, "wrong", func(i *bergv1.ChallengeInstance) { i.Spec.Flag = "f" + wrong }), bergv1.PhaseFailed)

		By("pods that fail")
		for _, behaviour := range []string{"crash", "image-pull", "not-ready"} {
			bergtest.Challenge(ctx, ns, behaviour, fmt.Sprintf(`containers: [{hostname: web, image: "berg.test/behaviour/%s:1", dynamicFlag: {env: {name: FLAG}}}]`, behaviour))
			i := bergtest.Instance(ctx, ns, behaviour, flagged("flag{%s}"))
			expect.Reaches(ctx, i, bergv1.PhaseStarting)
		}

		By("an operator that is killed, one that is asked to stop, and instances that terminate")
		leader.send(syscall.SIGKILL)
		<-leader.Exited()
		standby.leads(ctx)
		third := start(ctx, verbose).ready()
		processes = append(processes, third)
		apiserver.Change(ctx, running[2], func() { running[2].Spec.Timeout = "1s" })
		bergtest.Gone(ctx, running[2])
		standby.send(syscall.SIGTERM)
		Expect(standby.exits()).To(Equal(0))
		third.leads(ctx)
		expect.Reaches(ctx, bergtest.Instance(ctx, ns, "every-kind", flagged("flag{%s}")), bergv1.PhaseRunning)

		By("finding each flag where it must be")
		Expect(read(encode(ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: running[3].Status.Namespace, Name: "db"}}))).To(ContainSubstring(markers[3]))
		Expect(read(encode(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: running[3].Status.Namespace, Name: "flag-content"}}))).To(ContainSubstring(markers[3]), "base64 is not read")

		By("finding none anywhere else")
		for place, said := range everything(ctx, processes) {
			readable := read(said)
			for _, m := range markers {
				Expect(strings.Contains(readable, m)).To(BeFalse(), "%s tells %s: %s", place, m, excerpt(readable, m))
			}
		}
	}, SpecTimeout(limits.Wait*2))

	It("have a path that stays within an instance and that the next one does not share", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		p := start(ctx).leads(ctx)
		bergtest.Challenge(ctx, ns, "entropy", bergtest.EveryKind)
		i := bergtest.Running(ctx, ns, "entropy")
		path := flagPath(ctx, i)
		Expect(path).To(MatchRegexp(`^/flag-[0-9a-f]{12}\.txt$`))

		By("building the Deployment again, by another process")
		p.send(syscall.SIGTERM)
		Expect(p.exits()).To(Equal(0))
		Expect(k8s.Delete(ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: i.Status.Namespace, Name: "web"}})).To(Succeed())
		start(ctx).leads(ctx)
		Eventually(func(g Gomega) {
			g.Expect(k8s.Get(ctx, client.ObjectKey{Namespace: i.Status.Namespace, Name: "web"}, &appsv1.Deployment{})).To(Succeed())
		}).Should(Succeed())
		Expect(flagPath(ctx, i)).To(Equal(path))

		By("starting the next instance of the owner, of the same name")
		bergtest.Delete(ctx, i)
		next := bergtest.Instance(ctx, ns, "entropy", func(n *bergv1.ChallengeInstance) {
			n.GenerateName, n.Name, n.Spec.OwnerID = "", i.Name, i.Spec.OwnerID
		})
		expect.Reaches(ctx, next, bergv1.PhaseRunning)
		Expect(flagPath(ctx, next)).To(MatchRegexp(`^/flag-[0-9a-f]{12}\.txt$`))
		Expect(flagPath(ctx, next)).NotTo(Equal(path))
	})
})

// flagPath is where a container finds its flag as a file.
func flagPath(ctx context.Context, i *bergv1.ChallengeInstance) string {
	GinkgoHelper()
	var d appsv1.Deployment
	Expect(k8s.Get(ctx, client.ObjectKey{Namespace: i.Status.Namespace, Name: "web"}, &d)).To(Succeed())
	for _, m := range d.Spec.Template.Spec.Containers[0].VolumeMounts {
		if m.Name == "content" {
			return m.MountPath
		}
	}
	return ""
}

// everything is what the operator says, and what others may read of its objects,
// by place.
func everything(ctx context.Context, processes []*process) map[string]string {
	GinkgoHelper()
	out := map[string]string{}
	for n, p := range processes {
		out[fmt.Sprint("log of process ", n)] = p.log.String()
		Expect(p.log.String()).To(ContainSubstring(`"level":"Level(-5)"`), "the log is not as verbose as it can be")
	}
	last := processes[len(processes)-1]
	namespace := bergtest.Namespace(ctx)
	scraper := newAccount(ctx, namespace, "prometheus")
	metricsReader(ctx, namespace)
	binding := apiserver.Object(fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %[1]s}
subjects: [{kind: ServiceAccount, namespace: %[1]s, name: prometheus}]
`, namespace))
	apiserver.Create(ctx, binding)
	_, metrics := last.scrape(ctx, scraper)
	Expect(metrics).NotTo(BeEmpty())
	for name := range metrics {
		out["metrics"] += name + "\n"
	}
	out["lease"] = list(ctx, &coordinationv1.LeaseList{}, whole)
	out["events"] = list(ctx, &corev1.EventList{}, whole)
	out["instances"] = list(ctx, &bergv1.ChallengeInstanceList{}, func(o client.Object) any {
		i := o.(*bergv1.ChallengeInstance)
		i.Spec.Flag = ""
		return i
	})
	out["namespaces"] = list(ctx, &corev1.NamespaceList{}, whole)
	for _, kind := range []client.ObjectList{
		&appsv1.DeploymentList{}, &appsv1.ReplicaSetList{}, &corev1.PodList{}, &corev1.ServiceList{}, &corev1.ConfigMapList{},
		&policyv1.PodDisruptionBudgetList{}, &gatewayv1.HTTPRouteList{}, &gatewayv1.TLSRouteList{}, &ciliumv2.CiliumNetworkPolicyList{},
	} {
		out[fmt.Sprintf("metadata of %T", kind)] = list(ctx, kind, func(o client.Object) any {
			return []any{o.GetName(), o.GetLabels(), o.GetAnnotations()}
		})
	}
	for _, kind := range []client.ObjectList{&corev1.ServiceList{}, &policyv1.PodDisruptionBudgetList{}, &gatewayv1.HTTPRouteList{}, &ciliumv2.CiliumNetworkPolicyList{}} {
		out[fmt.Sprintf("%T", kind)] = list(ctx, kind, whole)
	}
	described, err := exec.CommandContext(ctx, "kubectl", "describe", "challengeinstances.berg.norelect.ch", "--all-namespaces").Output()
	Expect(err).NotTo(HaveOccurred())
	out["kubectl describe"] = specs.ReplaceAllString(string(described), "")
	Expect(out["kubectl describe"]).To(ContainSubstring("Instance Id:"))
	return out
}

// specs is what kubectl describe says of what the user wrote.
var specs = regexp.MustCompile(`(?ms)^Spec:$.*?^Status:$`)

func whole(o client.Object) any { return o }

// list reads all objects of a kind and writes down what is picked of each.
func list(ctx context.Context, kind client.ObjectList, pick func(client.Object) any) string {
	GinkgoHelper()
	Expect(k8s.List(ctx, kind)).To(Succeed())
	var b strings.Builder
	Expect(meta.EachListItem(kind, func(o runtime.Object) error {
		encoded, err := json.Marshal(pick(o.(client.Object)))
		b.Write(append(encoded, '\n'))
		return err
	})).To(Succeed())
	Expect(b.Len()).NotTo(BeZero(), "there is no %T", kind)
	return b.String()
}

func encode(ctx context.Context, o client.Object) string {
	GinkgoHelper()
	Expect(k8s.Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
	encoded, err := json.Marshal(o)
	Expect(err).NotTo(HaveOccurred())
	return string(encoded)
}

var (
	base64Run = regexp.MustCompile(`[A-Za-z0-9+/_-]{16,}`)
	hexRun    = regexp.MustCompile(`[0-9a-fA-F]{16,}`)
)

// read returns a text together with what its base64 and hex digits stand for,
// wherever they begin.
func read(text string) string {
	var b strings.Builder
	b.WriteString(text)
	for _, run := range base64Run.FindAllString(text, -1) {
		run = strings.NewReplacer("-", "+", "_", "/").Replace(run)
		for skip := range 4 {
			digits := run[skip:]
			decoded, err := base64.RawStdEncoding.DecodeString(digits[:len(digits)/4*4])
			Expect(err).NotTo(HaveOccurred())
			b.WriteByte('\n')
			b.Write(decoded)
		}
	}
	for _, run := range hexRun.FindAllString(text, -1) {
		for skip := range 2 {
			digits := run[skip:]
			decoded, err := hex.DecodeString(digits[:len(digits)/2*2])
			Expect(err).NotTo(HaveOccurred())
			b.WriteByte('\n')
			b.Write(decoded)
		}
	}
	return b.String()
}

// excerpt shows where something stands.
func excerpt(text, what string) string {
	at := strings.Index(text, what)
	return text[max(0, at-300):min(len(text), at+len(what)+100)]
}
