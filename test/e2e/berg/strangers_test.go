package berg

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/test/lib/deployed"
	"github.com/bergctf/berg-operator/test/lib/strangers"
)

// crowdSize is more than any port keeps without proof.
const crowdSize = 2000

// target is a port that strangers attack, from the node: no policy applies to it.
type target struct {
	name   string
	port   string
	secure bool
	// limit is how many connections without proof it keeps.
	limit int
	// want is the answer to a client in addition to the crowd, at path and with token.
	want        int
	path, token string
}

var _ = Describe("Strangers without a token", Label("network", "attack"), Serial, func() {
	const token = "e2e-token-of-strangers-0123456789"
	request := func(ctx context.Context, t target, crowd *strangers.Crowd) (int, error) {
		scheme := "http"
		if t.secure {
			scheme = "https"
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+crowd.Address+t.path, nil)
		if err != nil {
			return 0, err
		}
		if t.token != "" {
			r.Header.Set("Authorization", "Bearer "+t.token)
		}
		fresh := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
			DialContext: crowd.Dial, DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		}}
		answer, err := fresh.Do(r)
		if err != nil {
			return 0, err
		}
		return answer.StatusCode, answer.Body.Close()
	}

	DescribeTable("do not take a port away", func(ctx SpecContext, t target, pods func(context.Context) []corev1.Pod) {
		pod := pods(ctx)[0]
		answers := []int{t.want}
		if t.want == http.StatusUnauthorized { // who asks without a token, too, has the limit of strangers who send whole requests
			answers = append(answers, http.StatusTooManyRequests)
		}
		for _, sent := range []string{strangers.Unfinished, "GET " + t.path + " HTTP/1.1\r\nHost: x\r\n\r\n"} {
			crowd := &strangers.Crowd{
				Address: net.JoinHostPort(pod.Status.PodIP, t.port), TLS: t.secure, Request: sent, Stays: true, Dial: world.DialNode(ctx),
			}
			DeferCleanup(crowd.Leave)
			Expect(crowd.Join(ctx, crowdSize)).To(Succeed())
			for range 20 {
				Expect(request(ctx, t, crowd)).To(BeElementOf(answers))
			}
			Eventually(crowd.Open).WithContext(ctx).Should(BeNumerically("<=", t.limit))
			Eventually(crowd.Open).WithContext(ctx).WithTimeout(deployed.ReactLimit).Should(BeZero())
		}
		var after corev1.Pod
		Expect(world.Get(ctx, client.ObjectKeyFromObject(&pod), &after)).To(Succeed())
		Expect(after.Status.ContainerStatuses[0].RestartCount).To(Equal(pod.Status.ContainerStatuses[0].RestartCount))
		AddReportEntry("strangers", fmt.Sprintf("%s: %d connections without proof, %d requests answered", t.name, 2*crowdSize, 40))
	},
		Entry("of the platform API", SpecTimeout(deployed.SpecLimit), target{"platform API", "8080", false, 1024, 200, "/healthcheck", token}, platformPods(token)),
		Entry("of the platform API's metrics", SpecTimeout(deployed.SpecLimit), target{"platform API: metrics", "8081", false, 512, 200, "/metrics", ""}, platformPods(token)),
		Entry("of the operator's metrics", SpecTimeout(deployed.SpecLimit), target{"operator: metrics", "8443", true, 512, 401, "/metrics", ""}, operatorPods),
		Entry("of the operator's probes", SpecTimeout(deployed.SpecLimit), target{"operator: probes", "8081", false, 512, 200, "/healthz", ""}, operatorPods),
	)

	It("use up no rate of the right token with wrong ones", func(ctx SpecContext) {
		right := target{port: "8080", path: "/healthcheck", token: token}
		wrong := right
		wrong.token = "wrong-" + token
		pod := platformPods(token)(ctx)[0]
		platform := &strangers.Crowd{Address: net.JoinHostPort(pod.Status.PodIP, right.port), Dial: world.DialNode(ctx)}
		Expect(request(ctx, right, platform)).To(Equal(200))
		const guessers = 16
		ended := make(chan error, guessers)
		var unauthorized, limited atomic.Int32
		guess := func() error {
			for range 50 {
				switch status, err := request(ctx, wrong, platform); {
				case err != nil:
					return err
				case status == http.StatusUnauthorized:
					unauthorized.Add(1)
				case status == http.StatusTooManyRequests:
					limited.Add(1)
				default:
					return fmt.Errorf("a wrong token gets %d", status)
				}
			}
			return nil
		}
		for range guessers {
			go func() { ended <- guess() }()
		}
		for range 20 {
			Expect(request(ctx, right, platform)).To(Equal(200))
		}
		for range guessers {
			Expect(<-ended).To(Succeed())
		}
		Expect(request(ctx, right, platform)).To(Equal(200))
		AddReportEntry("strangers", fmt.Sprintf("platform API: %d wrong tokens refused, %d more limited, 22 requests with the right one answered", unauthorized.Load(), limited.Load()))
	}, SpecTimeout(deployed.SpecLimit))

	// What the rows above would find without limits: a server as net/http has it keeps every stranger.
	It("are all kept by a server without limits", func(ctx SpecContext) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		Expect(err).NotTo(HaveOccurred())
		server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-ctx.Done() })}
		go func() { _ = server.Serve(listener) }()
		DeferCleanup(server.Close)
		crowd := &strangers.Crowd{Address: listener.Addr().String(), Request: strangers.Unfinished}
		DeferCleanup(crowd.Leave)
		Expect(crowd.Join(ctx, crowdSize)).To(Succeed())
		Consistently(crowd.Open).WithContext(ctx).Should(Equal(crowdSize))
	}, SpecTimeout(deployed.SpecLimit))
})

func operatorPods(ctx context.Context) []corev1.Pod {
	GinkgoHelper()
	pods, err := world.OperatorPods(ctx)
	Expect(err).NotTo(HaveOccurred())
	Expect(pods).NotTo(BeEmpty())
	return pods
}

func platformPods(token string) func(context.Context) []corev1.Pod {
	return func(ctx context.Context) []corev1.Pod {
		GinkgoHelper()
		return world.InstallPlatformAPI(ctx, map[string]string{"strangers": "endpoint: chall-manager\ntoken: " + token + "\n"})
	}
}
