package operator

import (
	"context"
	"net"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/strangers"
)

// maxUntrusted is how many connections without proof a port of the operator keeps.
const maxUntrusted = 512

var _ = Describe("Strangers at the ports of operators as processes", Ordered, ContinueOnFailure, func() {
	withProcesses()

	var scraper string
	BeforeAll(func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		scraper = newAccount(ctx, ns, "prometheus")
		apiserver.Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: ns},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: metricsReader(ctx, ns)},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: "prometheus"}},
		})
	})

	DescribeTable("do not take them away", func(ctx context.Context, port string, request string) {
		p := start(ctx).ready()
		crowd := &strangers.Crowd{Address: p.Probes, Request: request}
		if port == "metrics" {
			crowd.Address, crowd.TLS = p.Metrics, true
		}
		DeferCleanup(crowd.Leave)
		for range 4 {
			Expect(crowd.Join(ctx, maxUntrusted)).To(Succeed())
			Expect(p.probe("/readyz")).To(Equal(http.StatusOK))
			Expect(statusOnly(p.scrape(ctx, scraper))).To(Equal(http.StatusOK))
		}
		Eventually(crowd.Open).Should(BeNumerically("<=", maxUntrusted))
		Eventually(crowd.Open).WithTimeout(time.Minute).Should(BeZero(), "they are not ended")
		Expect(p.Text()).To(ContainSubstring("connections were refused"))
	},
		Entry("probes, with bodies that do not come", "probes", strangers.Unfinished),
		Entry("probes, without a word", "probes", ""),
		Entry("metrics, with bodies that do not come", "metrics", strangers.Unfinished),
		Entry("metrics, without a word", "metrics", ""),
	)

	It("use up no rate of those who may scrape", func(ctx context.Context) {
		p := start(ctx).ready()
		Expect(statusOnly(p.scrape(ctx, scraper))).To(Equal(http.StatusOK))
		limited := func() bool { return statusOnly(p.scrape(ctx, "not-a-token")) == http.StatusTooManyRequests }
		Eventually(limited).WithPolling(time.Millisecond).Should(BeTrue())
		Expect(statusOnly(p.scrape(ctx, scraper))).To(Equal(http.StatusOK), "a right token waits for wrong ones")
	})

	// What the specs above would find without limits.
	It("are counted", func(ctx context.Context) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		Expect(err).NotTo(HaveOccurred())
		unbounded := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.NotFoundHandler()}
		go func() { _ = unbounded.Serve(listener) }()
		DeferCleanup(unbounded.Close)
		crowd := &strangers.Crowd{Address: listener.Addr().String()}
		DeferCleanup(crowd.Leave)
		Expect(crowd.Join(ctx, 2*maxUntrusted)).To(Succeed())
		Expect(crowd.Open()).To(Equal(2 * maxUntrusted))
	})
})
