package operator

import (
	"context"
	"crypto/tls"
	"net/http"
	"regexp"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/expect"
)

var _ = Describe("The metrics of operators as processes", Ordered, ContinueOnFailure, func() {
	withProcesses()

	var scraper string
	BeforeAll(func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		scraper = newAccount(ctx, ns, "prometheus")
		role := metricsReader(ctx, ns)
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: ns},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: "prometheus"}},
		}
		apiserver.Create(ctx, binding)
	})

	// metrics scrapes a process that must answer.
	metrics := func(ctx context.Context, p *process) map[string]float64 {
		GinkgoHelper()
		status, all := p.scrape(ctx, scraper)
		Expect(status).To(Equal(http.StatusOK))
		return all
	}

	It("are for those who may see them", func(ctx context.Context) {
		p := start(ctx).ready()
		for token, want := range map[string]int{
			"":            http.StatusUnauthorized,
			"not-a-token": http.StatusInternalServerError, // controller-runtime's answer to what is no token
			newAccount(ctx, bergtest.Namespace(ctx), "no-rights"): http.StatusForbidden,
			scraper: http.StatusOK,
		} {
			Expect(statusOnly(p.scrape(ctx, token))).To(Equal(want))
		}
		connection, err := tls.Dial("tcp", p.Metrics, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}})
		Expect(err).NotTo(HaveOccurred())
		defer connection.Close()
		Expect(connection.ConnectionState().NegotiatedProtocol).To(Equal("http/1.1"), "HTTP/2 is offered")
	})

	It("count every instance once, also after a change of leader", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		leader := start(ctx).leads(ctx).ready()
		Eventually(func(g Gomega) { // what other specs left is on its way out
			g.Expect(phases(metrics(ctx, leader))).To(HaveEach(0.0))
		}).Should(Succeed())
		standby := start(ctx).ready()
		bergtest.Challenge(ctx, ns, "counted", bergtest.OneContainer)
		running := bergtest.Several(ctx, ns, "counted", 3)
		failed := bergtest.Instance(ctx, ns, "never-written")
		bergtest.AllRun(ctx, running...)
		expect.Reaches(ctx, failed, bergv1.PhaseFailed)

		want := map[bergv1.Phase]float64{}
		for _, phase := range bergv1.Phases {
			want[phase] = 0
		}
		want[bergv1.PhaseRunning], want[bergv1.PhaseFailed] = 3, 1
		Eventually(func() map[bergv1.Phase]float64 { return phases(metrics(ctx, leader)) }).Should(Equal(want))
		all := metrics(ctx, leader)
		Expect(all).To(And(
			HaveKeyWithValue(`berg_challengeinstance_total{challenge="counted"}`, 3.0),
			HaveKeyWithValue(`berg_challengeinstance_time_to_running_seconds_count{challenge="counted"}`, 3.0),
			HaveKeyWithValue(`berg_challengeinstance_max_in_phase_seconds{phase="Starting"}`, 0.0),
			HaveKeyWithValue(`berg_challengeinstance_max_in_phase_seconds{phase="Running"}`, BeNumerically(">=", 0.0)),
			HaveKeyWithValue(`leader_election_master_status{name="berg-operator.berg.norelect.ch"}`, 1.0),
			HaveKeyWithValue("berg_challengeinstance_reconcile_errors_total", 0.0),
			HaveKeyWithValue("berg_challengeinstance_reconcile_duration_seconds_count", BeNumerically(">", 4.0)),
			HaveKey(HavePrefix("berg_operator_build_info{")),
			HaveKey(`quix_environment_active{phase="Ready"}`),
			HaveKey(`quix_environment_max_in_phase_seconds{phase="Failed"}`),
			HaveKey("quix_environment_unbound_total"),
			HaveKey(HavePrefix("rest_client_requests_total{")),
			HaveKey(HavePrefix("rest_client_request_duration_seconds_count{")),
		))
		for name := range all {
			Expect(name).NotTo(ContainSubstring("never-written"), "a Challenge that does not exist")
			Expect(name).NotTo(ContainSubstring(ns))
			for _, i := range running {
				Expect(name).NotTo(Or(ContainSubstring(i.Name), ContainSubstring(i.Spec.OwnerID), ContainSubstring(i.Status.InstanceID)))
			}
		}

		By("looking at the standby")
		Expect(metrics(ctx, standby)).To(And(
			Not(HaveKey(HavePrefix("berg_challengeinstance_active"))),
			Not(HaveKey(HavePrefix("berg_challengeinstance_longest"))),
			Not(HaveKey(HavePrefix("quix_environment_active"))),
			HaveKeyWithValue(`leader_election_master_status{name="berg-operator.berg.norelect.ch"}`, 0.0)))

		By("changing the leader: its first answer is right")
		leader.send(syscall.SIGTERM)
		Expect(leader.exits()).To(Equal(0))
		Eventually(func() map[string]float64 { all = metrics(ctx, standby); return all }).
			Should(HaveKey(HavePrefix("berg_challengeinstance_active")))
		Expect(phases(all)).To(Equal(want))

		By("terminating two, one by its expiry")
		apiserver.Change(ctx, running[0], func() { running[0].Spec.Timeout = "1s" })
		Expect(k8s.Delete(ctx, running[1])).To(Succeed())
		bergtest.Gone(ctx, running[0])
		bergtest.Gone(ctx, running[1])
		want[bergv1.PhaseRunning] = 1
		Eventually(func() map[bergv1.Phase]float64 { return phases(metrics(ctx, standby)) }).Should(Equal(want))
		Expect(metrics(ctx, standby)).To(And(
			HaveKeyWithValue("berg_challengeinstance_timeouts_total", 1.0),
			HaveKeyWithValue("berg_challengeinstance_expiry_delay_seconds_count", 1.0),
			HaveKeyWithValue("berg_challengeinstance_duration_seconds_count", 2.0)))

		By("deleting the Challenge")
		expect.Reaches(ctx, bergtest.Instance(ctx, ns, "counted"), bergv1.PhaseRunning)
		Expect(metrics(ctx, standby)).To(HaveKeyWithValue(`berg_challengeinstance_total{challenge="counted"}`, 1.0))
		Expect(k8s.Delete(ctx, &bergv1.Challenge{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "counted"}})).To(Succeed())
		Eventually(func() map[string]float64 { return metrics(ctx, standby) }).
			ShouldNot(HaveKey(ContainSubstring(`challenge="counted"`)))
	})

	It("count what the API server refuses as errors, and what an author must fix as none", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		p := start(ctx).leads(ctx).ready()
		errors := func() float64 { return metrics(ctx, p)["berg_challengeinstance_reconcile_errors_total"] }
		bergtest.Challenge(ctx, ns, "empty", `description: nothing runs`)
		expect.Reaches(ctx, bergtest.Instance(ctx, ns, "empty"), bergv1.PhaseFailed)
		Expect(errors()).To(BeZero())

		bergtest.Challenge(ctx, ns, "refused", bergtest.OneContainer)
		admissionSays(ctx, "refused", "Deny", `'not here'`)
		i := bergtest.Instance(ctx, ns, "refused")
		expect.Shows(ctx, i, bergv1.ConditionDeploymentsCreated, metav1.ConditionFalse, bergv1.ReasonRefused)
		Eventually(errors).Should(BeNumerically(">", 1))
	})
})

// newAccount creates a ServiceAccount and returns a token of it.
func newAccount(ctx context.Context, namespace, name string) string {
	GinkgoHelper()
	Expect(k8s.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})).To(Succeed())
	return apiserver.Token(ctx, namespace, name)
}

func statusOnly(status int, _ map[string]float64) int { return status }

// phases is the gauge of instances by phase.
func phases(all map[string]float64) map[bergv1.Phase]float64 {
	out := map[bergv1.Phase]float64{}
	for name, value := range all {
		if m := activeSeries.FindStringSubmatch(name); m != nil {
			out[bergv1.Phase(m[1])] = value
		}
	}
	return out
}

var activeSeries = regexp.MustCompile(`^berg_challengeinstance_active\{phase="(\w+)"\}$`)

// metricsReader creates a ClusterRole that may read metrics, which is deleted after the specs.
func metricsReader(ctx context.Context, name string) string {
	GinkgoHelper()
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules:      []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}},
	}
	apiserver.Create(ctx, role)
	return role.Name
}
