package operator

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certutil "k8s.io/client-go/util/cert"

	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/launch"
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
		served, err := launch.FreeAddress()
		Expect(err).NotTo(HaveOccurred())
		p := start(ctx, "WEBHOOK_BIND_ADDRESS="+served, "WEBHOOK_CERT_DIR="+certificates()).ready()
		crowd := &strangers.Crowd{Address: p.Probes, Request: request}
		switch port {
		case "metrics":
			crowd.Address, crowd.TLS = p.Metrics, true
		case "webhooks":
			crowd.Address, crowd.TLS = served, true
		}
		DeferCleanup(crowd.Leave)
		const crowds = 4
		for range crowds {
			Expect(crowd.Join(ctx, maxUntrusted)).To(Succeed())
			Expect(p.probe("/readyz")).To(Equal(http.StatusOK))
			Expect(statusOnly(p.scrape(ctx, scraper))).To(Equal(http.StatusOK))
			Expect(review(ctx, served)).To(ContainSubstring(`"allowed":true`))
		}
		Eventually(crowd.Open).Should(BeNumerically("<=", maxUntrusted))
		Eventually(crowd.Open).WithTimeout(time.Minute).Should(BeZero(), "they are not ended")
		// The port of probes answers without reading a body. If it is faster than the crowd, it refuses no connection.
		if crowd.Answered() < crowds*maxUntrusted {
			Eventually(p.Text).Should(ContainSubstring("connections were refused"))
		}
	},
		Entry("probes, with bodies that do not come", "probes", strangers.Unfinished),
		Entry("probes, without a word", "probes", ""),
		Entry("metrics, with bodies that do not come", "metrics", strangers.Unfinished),
		Entry("metrics, without a word", "metrics", ""),
		Entry("webhooks, with bodies that do not come", "webhooks", strangers.Unfinished),
		Entry("webhooks, without a word", "webhooks", ""),
	)

	It("send whole requests, as large as they like, and cost little memory", func(ctx context.Context) {
		const senders, size, maxMemory = 256, 3 << 20, 400 << 20
		served, err := launch.FreeAddress()
		Expect(err).NotTo(HaveOccurred())
		p := start(ctx, "WEBHOOK_BIND_ADDRESS="+served, "WEBHOOK_CERT_DIR="+certificates()).ready()
		large := fmt.Sprintf(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1","object":{"a":%q}}}`, strings.Repeat("a", size))
		crowd := &strangers.Crowd{Address: served, TLS: true, Stays: true, Request: fmt.Sprintf(
			"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(large), large)}
		DeferCleanup(crowd.Leave)
		joined := make(chan error, 1)
		go func() { joined <- crowd.Join(ctx, senders) }()
		for done := false; !done; {
			Expect(review(ctx, served)).To(ContainSubstring(`"allowed":true`))
			select {
			case err := <-joined:
				Expect(err).NotTo(HaveOccurred())
				done = true
			default:
			}
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
		Expect(err).NotTo(HaveOccurred())
		var peak int
		_, rest, _ := strings.Cut(string(status), "VmHWM:")
		Expect(fmt.Sscan(rest, &peak)).Error().NotTo(HaveOccurred())
		AddReportEntry("memory", fmt.Sprintf("%d MiB at most, while %d clients sent %d MiB each; %d had an answer", peak>>10, senders, size>>20, crowd.Answered()))
		Expect(peak << 10).To(BeNumerically("<", maxMemory))
		Expect(strings.Count(p.Text(), "unable to")).To(BeZero(), "strangers fill the log")
	})

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

// certificates makes a folder with a certificate, as cert-manager mounts it.
func certificates() string {
	GinkgoHelper()
	folder := GinkgoT().TempDir()
	certificate, key, err := certutil.GenerateSelfSignedCertKeyWithFixtures("localhost", nil, nil, "")
	Expect(err).NotTo(HaveOccurred())
	Expect(os.WriteFile(filepath.Join(folder, "tls.crt"), certificate, 0o600)).To(Succeed())
	Expect(os.WriteFile(filepath.Join(folder, "tls.key"), key, 0o600)).To(Succeed())
	return folder
}

// review asks a webhook server as the API server does, about an object of an API group that is not enabled.
func review(ctx context.Context, address string) string {
	GinkgoHelper()
	const request = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1","kind":{"version":"v1","kind":"Any"},"operation":"CREATE","object":{}}}`
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+address+"/", strings.NewReader(request))
	Expect(err).NotTo(HaveOccurred())
	r.Header.Set("Content-Type", "application/json")
	fresh := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	answer, err := fresh.Do(r)
	Expect(err).NotTo(HaveOccurred())
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	Expect(err).NotTo(HaveOccurred())
	return string(text)
}
