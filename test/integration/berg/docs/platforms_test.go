package docs

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/limits"
)

// shellBlock is the text of a fenced block of commands.
var shellBlock = regexp.MustCompile("(?s)\n```sh\n(.*?)\n```\n")

// What docs/platforms.md says, done as it says it, in the namespace that it names.
var _ = Describe("A platform as the documentation has it", func() {
	const page = "../../../../docs/platforms.md"

	BeforeEach(func(ctx context.Context) {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "berg"}}
		Expect(client.IgnoreAlreadyExists(k8s.Create(ctx, ns))).To(Succeed())
		bergtest.Challenge(ctx, ns.Name, "guestbook", `containers: [{hostname: web, image: "example.com/web:1", ports: [{name: web, port: 8080, type: publicHttpRoute}]}]`)
		DeferCleanup(func(ctx context.Context) {
			Expect(k8s.DeleteAllOf(ctx, &bergv1.ChallengeInstance{}, client.InNamespace(ns.Name))).To(Succeed())
			Expect(k8s.DeleteAllOf(ctx, &bergv1.Challenge{}, client.InNamespace(ns.Name))).To(Succeed())
		})
	})
	alice := func() *bergv1.ChallengeInstance {
		return &bergv1.ChallengeInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "berg", Name: "alice-guestbook"}}
	}
	needs := func(command string, args ...string) {
		GinkgoHelper()
		if err := exec.Command(command, args...).Run(); err != nil {
			Skip("hack/packages platforms installs what this needs: " + err.Error())
		}
	}

	It("lives with curl", func(ctx context.Context) {
		needs("curl", "--version")
		needs("jq", "--version")
		text, err := os.ReadFile(page)
		Expect(err).NotTo(HaveOccurred())
		before, _, found := strings.Cut(string(text), "\n## Go\n")
		Expect(found).To(BeTrue())
		script := "set -euo pipefail\n"
		for _, m := range shellBlock.FindAllStringSubmatch(before, -1) {
			script += m[1] + "\n"
		}
		shell := exec.CommandContext(ctx, "bash", "-c", script)
		shell.Dir = GinkgoT().TempDir()
		// A file: the watch that was left stays for some minutes, and would keep a pipe open.
		file, err := os.Create(filepath.Join(shell.Dir, "output"))
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(file.Close)
		shell.Stdout, shell.Stderr = file, file
		err = shell.Run()
		out, _ := os.ReadFile(file.Name())
		Expect(err).NotTo(HaveOccurred(), "%s", out)
		Expect(string(out)).To(And(ContainSubstring("http://"), ContainSubstring(`"timeout": "2h"`), Not(ContainSubstring(`"kind": "Status"`))))
		i := alice()
		expect.Gone(ctx, i)
	}, SpecTimeout(limits.Scaled(5*time.Minute)))

	It("lives with Python", func(ctx context.Context) {
		// Debian's client is in Debian's Python, which need not be the first in PATH.
		python := "/usr/bin/python3"
		if exec.CommandContext(ctx, "python3", "-c", "import kubernetes").Run() == nil {
			python = "python3"
		}
		needs(python, "-c", "import kubernetes")
		program, err := filepath.Abs("../../../../docs/platforms/play.py")
		Expect(err).NotTo(HaveOccurred())
		out, err := exec.CommandContext(ctx, python, program, "alice", "guestbook").CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), "%s", out)
		Expect(string(out)).To(And(ContainSubstring("Running"), ContainSubstring("web http://"), ContainSubstring("it ends at"), HaveSuffix("gone\n")))
	}, SpecTimeout(limits.Scaled(5*time.Minute)))

	It("lives with Go", func(ctx context.Context) {
		free, err := net.Listen("tcp", "127.0.0.1:0")
		Expect(err).NotTo(HaveOccurred())
		address := free.Addr().String()
		Expect(free.Close()).To(Succeed())
		program := filepath.Join(GinkgoT().TempDir(), "platform")
		out, err := exec.CommandContext(ctx, "go", "build", "-o", program, "../../../../docs/platforms").CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), "%s", out)
		platform := exec.Command(program, "--listen", address) //nolint:noctx // it is told to end before the context is over
		platform.Stdout, platform.Stderr = GinkgoWriter, GinkgoWriter
		Expect(platform.Start()).To(Succeed())
		DeferCleanup(func() {
			Expect(platform.Process.Signal(os.Interrupt)).To(Succeed())
			Expect(platform.Wait()).To(Succeed())
		})

		ask := func(g Gomega, method, query string) (int, map[string]any) {
			r, err := http.NewRequestWithContext(ctx, method, "http://"+address+"/instances/alice/guestbook"+query, nil)
			g.Expect(err).NotTo(HaveOccurred())
			response, err := http.DefaultClient.Do(r)
			g.Expect(err).NotTo(HaveOccurred())
			defer response.Body.Close()
			var body map[string]any
			_ = json.NewDecoder(response.Body).Decode(&body)
			return response.StatusCode, body
		}
		all := Default
		Eventually(func(g Gomega) {
			code, _ := ask(g, http.MethodPut, "")
			g.Expect(code).To(Equal(http.StatusAccepted))
		}).Should(Succeed())
		again, _ := ask(all, http.MethodPut, "")
		Expect(again).To(Equal(http.StatusAccepted))
		Eventually(func(g Gomega) {
			code, shown := ask(g, http.MethodGet, "")
			g.Expect(code).To(Equal(http.StatusOK))
			g.Expect(shown).To(And(HaveKeyWithValue("phase", "Running"), HaveKeyWithValue("urls", ContainElement(HavePrefix("http://"))), Not(HaveKey("problem"))))
		}).Should(Succeed())
		longer, _ := ask(all, http.MethodPost, "?timeout=2h")
		Expect(longer).To(Equal(http.StatusAccepted))
		i := alice()
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(i), i)).To(Succeed())
		Expect(i.Spec.Timeout).To(Equal("2h"))
		wrong, _ := ask(all, http.MethodPost, "?timeout=soon")
		Expect(wrong).To(Equal(http.StatusUnprocessableEntity))
		ended, _ := ask(all, http.MethodDelete, "")
		Expect(ended).To(Equal(http.StatusAccepted))
		Eventually(func(g Gomega) {
			code, _ := ask(g, http.MethodGet, "")
			g.Expect(code).To(Equal(http.StatusNotFound))
		}).Should(Succeed())
	}, SpecTimeout(limits.Scaled(8*time.Minute)))
})
