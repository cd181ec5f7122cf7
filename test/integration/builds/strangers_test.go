package builds

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/test/lib/installed"
	"github.com/bergctf/berg-operator/test/lib/limits"
	"github.com/bergctf/berg-operator/test/lib/strangers"
)

// Each row is tried while strangers hold more connections than the port keeps. The right webhook, which differs from the refused ones in one
// thing, is the control: it is accepted, and the operator asks the repository.
var _ = Describe("The receiver of webhooks", Label("attack"), func() {
	It("lets strangers build nothing, and keep no one from it", func(ctx SpecContext) {
		Expect(installed.Folder(ctx, k8s, "config/kibaship/pushes", "kubectl")).To(Succeed())
		w := newWatched(ctx, map[string]string{"GIT_WEBHOOK_URL": "https://pushes.example.org/"})
		d := w.builds(ctx, w.deployment("main"), w.Git("rev-parse", "main"))
		secret := &corev1.Secret{}
		Eventually(func(g Gomega) {
			g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(w.app), w.app)).To(Succeed())
			g.Expect(w.app.Status.AutoBuild.WebhookSecret).NotTo(BeEmpty())
			g.Expect(k8s.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: w.app.Status.AutoBuild.WebhookSecret}, secret)).To(Succeed())
		}).WithContext(ctx).Should(Succeed())
		path := strings.TrimPrefix(w.app.Status.AutoBuild.WebhookURL, "https://pushes.example.org")
		key, receiver := string(secret.Data["secret"]), startReceiver(ctx)
		const body = `{"ref":"refs/heads/main"}`

		By("strangers whose bodies do not come")
		slow := &strangers.Crowd{Address: strings.TrimPrefix(receiver, "http://"), Request: "POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"}
		DeferCleanup(slow.Leave)
		Expect(slow.Join(ctx, 1000)).To(Succeed())
		Eventually(slow.Open).WithContext(ctx).WithTimeout(5*time.Second).Should(BeNumerically("<=", 512), "a request has ten seconds")

		// A right webhook changes this annotation, by which the operator asks the repository.
		pushed := func(g Gomega) string {
			g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(w.app), w.app)).To(Succeed())
			return w.app.Annotations[kibashipv1.AnnotationPushed]
		}
		before := w.app.Annotations[kibashipv1.AnnotationPushed]
		for name, attack := range map[string]struct{ path, key, body string }{
			"forged":                         {path, "forged", body},
			"without a key":                  {path, "", body},
			"of another Application":         {strings.Replace(path, w.app.Name, w.app.Name+"-x", 1), key, body},
			"below another path of the port": {"/", key, body},
			"of an Application that is not":  {strings.Replace(path, string(w.app.UID), "6e8ddb5c-8a4c-4f3d-9d5e-6c1d2d8f8f11", 1), key, body},
		} {
			status, _ := sendSigned(ctx, receiver+attack.path, attack.key, attack.body)
			Expect(status).To(Equal(http.StatusUnauthorized), name)
		}

		By("a huge body, which a client that waits for the answer does not send")
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, receiver+path, strings.NewReader(strings.Repeat("x", 6<<20)))
		Expect(err).NotTo(HaveOccurred())
		request.Header.Set("Expect", "100-continue")
		answer, err := http.DefaultClient.Do(request)
		Expect(err).NotTo(HaveOccurred())
		Expect(answer.Body.Close()).To(Succeed())
		Expect(answer.StatusCode).To(Equal(http.StatusRequestEntityTooLarge))

		By("a body of chunks without an end")
		reader, writer := io.Pipe()
		var chunks sync.WaitGroup
		chunks.Go(func() {
			for n, err := 0, error(nil); err == nil && n < 64; n++ {
				_, err = writer.Write(make([]byte, 1<<20))
			}
			_ = writer.Close()
		})
		request, err = http.NewRequestWithContext(ctx, http.MethodPost, receiver+path, reader)
		Expect(err).NotTo(HaveOccurred())
		request.Header.Set("X-Hub-Signature-256", "sha256="+strings.Repeat("0", 64))
		if answer, err := http.DefaultClient.Do(request); err == nil { // or the connection has ended before the client read the answer
			Expect(answer.StatusCode).To(Equal(http.StatusRequestEntityTooLarge))
			_ = answer.Body.Close()
		}
		_ = reader.Close()
		chunks.Wait()
		Consistently(pushed).WithContext(ctx).WithTimeout(3 * time.Second).Should(Equal(before))

		By("the right one")
		newest := w.Commit("main", "second")
		status, took := sendSigned(ctx, receiver+path, key, body)
		Expect(status).To(Equal(http.StatusAccepted))
		Eventually(pushed).WithContext(ctx).ShouldNot(Equal(before))
		w.builds(ctx, d, newest)
		AddReportEntry("webhooks", fmt.Sprintf("the right one was answered after %s, among 1000 connections of strangers", took.Round(time.Millisecond)))

		By("a tenant with the secret of an own Application, who keeps the connections")
		tenant := &strangers.Crowd{Address: slow.Address, Stays: true, Request: "POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nX-Gitlab-Token: " + key + "\r\n\r\n"}
		DeferCleanup(tenant.Leave)
		Expect(tenant.Join(ctx, 1000)).To(Succeed())
		Eventually(tenant.Open).WithContext(ctx).WithTimeout(5 * time.Second).Should(BeZero())
		Expect(tenant.Answered()).To(Equal(1000))

		By("a server without limits, which keeps every stranger")
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		Expect(err).NotTo(HaveOccurred())
		server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
		})}
		go func() { _ = server.Serve(listener) }()
		DeferCleanup(server.Close)
		kept := &strangers.Crowd{Address: listener.Addr().String(), Request: slow.Request}
		DeferCleanup(kept.Leave)
		Expect(kept.Join(ctx, 1000)).To(Succeed())
		Consistently(kept.Open).WithContext(ctx).WithTimeout(5 * time.Second).Should(Equal(1000))
	}, SpecTimeout(limits.Scaled(4*time.Minute)))
})
