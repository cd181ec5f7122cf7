package tunnel

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/internal/tunnel/expose"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
)

// exposing runs expose in this process until end is called or the spec ends.
type exposing struct {
	ended chan error
	end   context.CancelFunc
}

// text is written by one goroutine and read by another one.
type text struct {
	sync.Mutex
	bytes.Buffer
}

func (t *text) Write(b []byte) (int, error) {
	t.Lock()
	defer t.Unlock()
	return t.Buffer.Write(b)
}

var _ = Describe("berg-tunnel expose", func() {
	const name = "laptop"
	var namespace string
	at := func(o client.Object) client.Object {
		o.SetNamespace(namespace)
		o.SetName(name)
		return o
	}
	options := func(replace bool) expose.Options {
		return expose.Options{
			Config: apiserver.Config, Namespace: namespace, Name: name, Image: "example.com/berg-tunnel:1", Replace: replace,
			Ports: []expose.Port{{Local: 9, InCluster: 80}}, Out: GinkgoWriter,
			Log: slog.New(slog.NewTextHandler(GinkgoWriter, &slog.HandlerOptions{Level: slog.LevelDebug})),
		}
	}
	run := func(ctx context.Context, o expose.Options) exposing {
		exposed, cancel := context.WithCancel(context.WithoutCancel(ctx))
		e := exposing{ended: make(chan error, 1), end: cancel}
		go func() { e.ended <- expose.Run(exposed, o) }()
		DeferCleanup(cancel)
		return e
	}
	// podUID waits for a pod other than a former one.
	podUID := func(ctx context.Context, former types.UID) types.UID {
		GinkgoHelper()
		pod := &corev1.Pod{}
		Eventually(ctx, func() bool {
			return k8s.Get(ctx, client.ObjectKeyFromObject(at(pod)), pod) == nil && pod.UID != former
		}).Should(BeTrue())
		return pod.UID
	}
	nothingLeft := func(ctx context.Context) {
		GinkgoHelper()
		for _, o := range []client.Object{&corev1.Pod{}, &corev1.Secret{}, &corev1.Service{}} {
			expect.Gone(ctx, at(o))
		}
	}
	BeforeEach(func(ctx SpecContext) {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "expose-"}}
		Expect(k8s.Create(ctx, ns)).To(Succeed())
		namespace = ns.Name
		DeferCleanup(func(ctx context.Context) { Expect(client.IgnoreNotFound(k8s.Delete(ctx, ns))).To(Succeed()) })
	})

	DescribeTable("refuses a foreign object of its name, and leaves it unchanged", func(ctx SpecContext, foreign client.Object, kind string) {
		Expect(k8s.Create(ctx, at(foreign))).To(Succeed())
		Expect(expose.Run(ctx, options(true))).To(MatchError(And(ContainSubstring("has a "+kind+" "+name), ContainSubstring("--as"))))
		live := foreign.DeepCopyObject().(client.Object)
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(foreign), live)).To(Succeed())
		Expect(live.GetUID()).To(Equal(foreign.GetUID()))
		if kind != "pod" {
			expect.Gone(ctx, at(&corev1.Pod{}))
		}
	},
		Entry("a Service", &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}, "service"),
		Entry("a Secret", &corev1.Secret{StringData: map[string]string{"password": "theirs"}}, "secret"),
		Entry("a pod", &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "own", Image: "example.org/own:1"}}}}, "pod"),
	)

	It("gives the name to the last of several that replace each other", func(ctx SpecContext) {
		first := run(ctx, options(true))
		uid := podUID(ctx, "")
		second := run(ctx, options(true))
		Eventually(ctx, first.ended).Should(Receive(MatchError(ContainSubstring("another berg-tunnel"))))
		uid = podUID(ctx, uid)
		Consistently(ctx, func() types.UID { return podUID(ctx, "") }, 8*time.Second, time.Second).Should(Equal(uid))
		second.end()
		Eventually(ctx, second.ended).Should(Receive(BeNil()))
		nothingLeft(ctx)
	})

	It("makes a Secret and a Service again that were deleted by hand", func(ctx SpecContext) {
		e := run(ctx, options(false))
		for _, o := range []client.Object{&corev1.Secret{}, &corev1.Service{}} {
			Eventually(ctx, func() error { return k8s.Get(ctx, client.ObjectKeyFromObject(at(o)), o) }).Should(Succeed())
			former := o.GetUID()
			Expect(k8s.Delete(ctx, o)).To(Succeed())
			Eventually(ctx, func() bool {
				return k8s.Get(ctx, client.ObjectKeyFromObject(at(o)), o) == nil && o.GetUID() != former
			}).Should(BeTrue())
		}
		By("a foreign Service in the same place")
		Expect(k8s.Delete(ctx, at(&corev1.Service{}))).To(Succeed())
		Expect(k8s.Create(ctx, at(&corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}))).To(Succeed())
		Eventually(ctx, e.ended).Should(Receive(MatchError(ContainSubstring("has a service " + name))))
		expect.Gone(ctx, at(&corev1.Pod{}))
		expect.Gone(ctx, at(&corev1.Secret{}))
	})

	DescribeTable("removes its objects at a signal", func(ctx SpecContext, signal os.Signal) {
		out := &text{}
		c := exec.CommandContext(ctx, program, "expose", "9", "--as", name, "-n", namespace, "--image", "example.com/berg-tunnel:1",
			"--kubeconfig", filepath.Clean(os.Getenv("KUBECONFIG")))
		c.Stdout, c.Stderr = out, out
		Expect(c.Start()).To(Succeed())
		podUID(ctx, "")
		Expect(c.Process.Signal(signal)).To(Succeed())
		Expect(c.Wait()).To(Succeed(), "%s", out)
		nothingLeft(ctx)
	}, Entry("SIGHUP, as of a terminal that is closed", syscall.SIGHUP), Entry("SIGTERM", syscall.SIGTERM))
})
