package tunnel

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/internal/tunnel/expose"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/limits"
)

// operatorImage is the image that includes the program.
func operatorImage(ctx context.Context) string {
	GinkgoHelper()
	d := &appsv1.Deployment{}
	Expect(world.Get(ctx, world.Operator, d)).To(Succeed())
	return d.Spec.Template.Spec.Containers[0].Image
}

// transcript is what a person at the terminal reads.
type transcript struct {
	sync.Mutex
	strings.Builder
}

func (t *transcript) Write(b []byte) (int, error) {
	t.Lock()
	defer t.Unlock()
	return t.Builder.Write(b)
}

func (t *transcript) text() string {
	t.Lock()
	defer t.Unlock()
	return t.String()
}

// brokenOff ends a program as soon as the API server has made a pod, before its answer arrives.
type brokenOff struct {
	http.RoundTripper
	end func()
}

func (b brokenOff) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := b.RoundTripper.RoundTrip(r.WithContext(context.WithoutCancel(r.Context())))
	if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/pods") || err != nil {
		return response, err
	}
	b.end()
	select {
	case <-r.Context().Done():
		_ = response.Body.Close()
		return nil, r.Context().Err()
	case <-time.After(time.Second): // it waits for the answer
		return response, nil
	}
}

// restartKubelet ends the kubelet of the node, and starts it again.
func restartKubelet(ctx context.Context) {
	GinkgoHelper()
	state := filepath.Dir(filepath.Dir(os.Getenv("KUBECONFIG")))
	restart := exec.CommandContext(ctx, "go", "run", "./test/cluster", "restart", "--name", filepath.Base(state), "kubelet")
	restart.Dir = "../../.."
	out, err := restart.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%s", out)
}

var _ = Describe("berg-tunnel expose", Serial, func() {
	It("lets a pod reach this machine, connects again when kubelet or pod are lost, and leaves nothing", func(ctx SpecContext) {
		const name = "exposed"
		namespace := &corev1.Namespace{}
		namespace.GenerateName, namespace.Labels = "expose-", map[string]string{"pod-security.kubernetes.io/enforce": "baseline"}
		Expect(world.Create(ctx, namespace)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(client.IgnoreNotFound(world.Delete(ctx, namespace))).To(Succeed()) })
		guest := visitor(ctx, namespace.Name)

		listener, err := net.Listen("tcp", "127.0.0.1:0")
		Expect(err).NotTo(HaveOccurred())
		server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "here") })}
		go func() { _ = server.Serve(listener) }()
		DeferCleanup(func() { _ = server.Close() })

		shown := &transcript{}
		options := expose.Options{
			Config: world.Rest, Namespace: namespace.Name, Name: name, Image: operatorImage(ctx),
			Ports: []expose.Port{{Local: int32(listener.Addr().(*net.TCPAddr).Port), InCluster: 80}},
			Out:   shown, Log: slog.New(slog.NewTextHandler(GinkgoWriter, &slog.HandlerOptions{Level: slog.LevelDebug})),
		}
		start := func(o expose.Options) (end func() error) {
			running, cancel := context.WithCancel(context.WithoutCancel(ctx))
			ended := make(chan error, 1)
			go func() { ended <- expose.Run(running, o) }()
			DeferCleanup(cancel)
			return func() error {
				cancel()
				return <-ended
			}
		}
		begin := time.Now()
		end := start(options)
		Eventually(ctx, shown.text).Should(ContainSubstring(name+"."+namespace.Name+".svc:80"), "%s", shown.text())
		AddReportEntry("pods reach this machine after", time.Since(begin).Round(100*time.Millisecond).String())
		reaches := func() {
			GinkgoHelper()
			Eventually(ctx, func() (string, error) { return fetches(ctx, guest, name) }).Should(Equal("here"), "%s", shown.text())
		}
		reaches()

		By("another one with the same name")
		Expect(expose.Run(ctx, options)).To(MatchError(And(ContainSubstring("--as"), ContainSubstring("--replace"))))
		reaches()

		By("restarting the kubelet")
		pod := &corev1.Pod{}
		pod.Namespace, pod.Name = namespace.Name, name
		Expect(world.Get(ctx, client.ObjectKeyFromObject(pod), pod)).To(Succeed())
		before, uid := strings.Count(shown.text(), "Connected again"), pod.UID
		restartKubelet(ctx)
		Eventually(ctx, func() int { return strings.Count(shown.text(), "Connected again") }).Should(BeNumerically(">", before), "%s", shown.text())
		reaches()
		Expect(world.Get(ctx, client.ObjectKeyFromObject(pod), pod)).To(Succeed())
		Expect(pod.UID).To(Equal(uid), "the pod is another one")

		By("deleting the pod")
		before = strings.Count(shown.text(), "Connected again")
		Expect(world.Delete(ctx, pod, client.GracePeriodSeconds(0))).To(Succeed())
		Eventually(ctx, func() int { return strings.Count(shown.text(), "Connected again") }).Should(BeNumerically(">", before), "%s", shown.text())
		reaches()

		By("ending it")
		nothingLeft := func() {
			GinkgoHelper()
			for _, left := range []client.Object{&corev1.Pod{}, &corev1.Secret{}, &corev1.Service{}} {
				left.SetNamespace(namespace.Name)
				left.SetName(name)
				expect.Gone(ctx, left)
			}
		}
		Expect(end()).To(Succeed(), "%s", shown.text())
		nothingLeft()

		By("ending it while its pod is made")
		early := options
		early.Config = rest.CopyConfig(options.Config)
		running, cancel := context.WithCancel(ctx)
		defer cancel()
		early.Config.Wrap(func(next http.RoundTripper) http.RoundTripper { return brokenOff{next, cancel} })
		Expect(expose.Run(running, early)).To(Succeed())
		Expect(running.Err()).To(HaveOccurred(), "no pod was made")
		nothingLeft()

		By("a pod of that name that it did not make")
		foreign := &corev1.Pod{}
		foreign.Namespace, foreign.Name = namespace.Name, name
		foreign.Spec.Containers = []corev1.Container{{Name: "own", Image: "example.org/own:1"}}
		Expect(world.Create(ctx, foreign)).To(Succeed())
		options.Replace = true
		Expect(expose.Run(ctx, options)).To(MatchError(ContainSubstring("did not make")))
		Expect(world.Get(ctx, client.ObjectKeyFromObject(foreign), foreign)).To(Succeed())
	}, SpecTimeout(limits.Scaled(5*time.Minute)))
})
