package api

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	bergapply "github.com/bergctf/berg-operator/api/client/applyconfiguration/berg/v1"
	hexactfapply "github.com/bergctf/berg-operator/api/client/applyconfiguration/hexactf/v1alpha1"
	kibashipapply "github.com/bergctf/berg-operator/api/client/applyconfiguration/kibaship/v1alpha1"
	quixapply "github.com/bergctf/berg-operator/api/client/applyconfiguration/quix/v1"
	tunnelapply "github.com/bergctf/berg-operator/api/client/applyconfiguration/tunnel/v1"
	"github.com/bergctf/berg-operator/api/client/clientset/versioned"
	hexactfv1alpha1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	kibashipv1alpha1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/limits"
)

// The programs and commands of docs/clients.md, as it runs them.
var _ = Describe("The clients of the documentation", func() {
	const (
		examples = "../../../docs/clients"
		prepared = "../../../dist/clients" // by make clients
	)
	// run returns what a command prints, with the address and the token of an API for a namespace of its own in its
	// environment. The argument NAMESPACE becomes that namespace.
	run := func(ctx context.Context, command string, args ...string) string {
		GinkgoHelper()
		ns := bergtest.Namespace(ctx)
		bergtest.Challenge(ctx, ns, "guestbook", bergtest.OneContainer)
		for n := range args {
			if args[n] == "NAMESPACE" {
				args[n] = ns
			}
		}
		program := exec.CommandContext(ctx, command, args...)
		program.Env = append(os.Environ(), "BERG_API="+begin(ctx, ns, 1, nil).proxy.URL, "BERG_TOKEN="+tokensOf["v1"])
		out, err := program.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), "%s", out)
		Expect(livingInstances(ctx, ns)).To(BeEmpty(), "an instance is left")
		return string(out)
	}
	made := func(path string) string {
		GinkgoHelper()
		file, err := filepath.Abs(filepath.Join(prepared, path))
		Expect(err).NotTo(HaveOccurred())
		Expect(file).To(BeAnExistingFile(), "run `make clients` first: it fetches what the clients need, and needs npm and python3-venv itself")
		return file
	}
	limit := SpecTimeout(limits.Scaled(5 * time.Minute))
	plays := And(ContainSubstring("web http://"), ContainSubstring("it ends at 2"), HaveSuffix("stopped\n"))

	It("are written in Go", func(ctx SpecContext) {
		program := filepath.Join(GinkgoT().TempDir(), "play")
		out, err := exec.CommandContext(ctx, "go", "build", "-o", program, examples+"/go").CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), "%s", out)
		Expect(run(ctx, program, "NAMESPACE", "alice", "guestbook")).To(And(ContainSubstring("web http://"), HaveSuffix("gone\n")))
	}, limit)

	It("are written in TypeScript", func(ctx SpecContext) {
		Expect(run(ctx, "node", made("typescript/dist/play.js"), "alice", "guestbook")).To(plays)
	}, limit)

	It("are written in Python", func(ctx SpecContext) {
		Expect(run(ctx, made("python/bin/python"), examples+"/python/play.py", "alice", "guestbook")).To(plays)
	}, limit)

	It("are commands of a shell", func(ctx SpecContext) {
		page, err := os.ReadFile("../../../docs/clients.md")
		Expect(err).NotTo(HaveOccurred())
		_, plain, found := strings.Cut(string(page), "\n## Plain HTTP\n")
		Expect(found).To(BeTrue())
		plain, _, _ = strings.Cut(plain, "\n## ")
		script := "set -euo pipefail\n"
		for n, block := range regexp.MustCompile("(?s)\n```sh\n(.*?)\n```\n").FindAllStringSubmatch(plain, -1) {
			if n == 1 { // the start, which is sent again until the instance runs
				block[1] = `for n in {1..20}; do answer=$(` + block[1] + `); echo "$answer"; [[ $answer != *'"state":"running"'* ]] || break; done`
			}
			script += block[1] + "\n"
		}
		out := run(ctx, "bash", "-c", script)
		Expect(out).To(And(ContainSubstring(`"state":"running"`), ContainSubstring(`"url":"http://`), HaveSuffix("{}\n")))
	}, limit)
})

// livingInstances returns the names of the instances of a namespace that are not being deleted.
func livingInstances(ctx context.Context, namespace string) (names []string) {
	GinkgoHelper()
	all, err := typed().BergV1().ChallengeInstances(namespace).List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	for _, i := range all.Items {
		if i.DeletionTimestamp.IsZero() && i.Spec.TerminationReason == "" {
			names = append(names, i.Name)
		}
	}
	return names
}

func typed() *versioned.Clientset {
	GinkgoHelper()
	clients, err := versioned.NewForConfig(apiserver.Config)
	Expect(err).NotTo(HaveOccurred())
	return clients
}

var _ = Describe("The typed clients", func() {
	by := func(manager string) metav1.ApplyOptions { return metav1.ApplyOptions{FieldManager: manager} }

	It("apply a Challenge and an instance of it", func(ctx SpecContext) {
		ns := bergtest.Namespace(ctx)
		challenges, instances := typed().BergV1().Challenges(ns), typed().BergV1().ChallengeInstances(ns)
		challenge := func(image string) *bergapply.ChallengeApplyConfiguration {
			return bergapply.Challenge("guestbook", ns).WithSpec(bergapply.ChallengeSpec().WithContainers(
				bergapply.Container().WithHostname("web").WithImage(image).WithPorts(
					bergapply.Port().WithName("web").WithPort(8080).WithType(bergv1.PublicHTTPRoute))))
		}
		created, err := challenges.Apply(ctx, challenge("example.com/web:1"), by("author"))
		Expect(err).NotTo(HaveOccurred())
		same, err := challenges.Apply(ctx, challenge("example.com/web:1"), by("author"))
		Expect(err).NotTo(HaveOccurred())
		Expect(same.Generation).To(Equal(created.Generation), "the same was applied, and changed something")
		_, err = challenges.Apply(ctx, challenge("example.com/web:2"), by("another"))
		Expect(apierrors.IsConflict(err)).To(BeTrue(), "a field of another manager was changed: %v", err)

		instance := func() *bergapply.ChallengeInstanceSpecApplyConfiguration {
			return bergapply.ChallengeInstanceSpec().WithOwnerID("0f8fad5b-d9cb-469f-a165-70867728950e").
				WithChallengeRef(bergapply.ChallengeReference().WithName("guestbook").WithNamespace(ns))
		}
		first, err := instances.Apply(ctx, bergapply.ChallengeInstance("alice", ns).WithSpec(instance().WithTimeout("1h")), by("platform"))
		Expect(err).NotTo(HaveOccurred())
		Expect(first.Spec.Timeout).To(Equal("1h"))
		Eventually(func(g Gomega) {
			now, err := instances.Get(ctx, "alice", metav1.GetOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(now.Status.Phase).To(Equal(bergv1.PhaseRunning))
			g.Expect(now.Status.Services).To(ContainElement(HaveField("URL", HavePrefix("http://"))))
		}).Should(Succeed())
		longer, err := instances.Apply(ctx, bergapply.ChallengeInstance("alice", ns).WithSpec(instance()), by("platform"))
		Expect(err).NotTo(HaveOccurred())
		Expect(longer.Spec.Timeout).To(BeEmpty(), "a field that is applied no longer stays")
		Expect(longer.Status.Phase).To(Equal(bergv1.PhaseRunning), "what the operator wrote is lost")
	}, SpecTimeout(limits.Scaled(5*time.Minute)))

	It("know every kind by the names that the API server has", func(ctx SpecContext) {
		c, ns, all := typed(), bergtest.Namespace(ctx), metav1.ListOptions{}
		berg, hexactf, kibaship, quix, tunnel := c.BergV1(), c.HexaCTFV1alpha1(), c.KibaShipV1alpha1(), c.QuixV1(), c.TunnelV1()
		for kind, list := range map[string]func() error{
			"Challenge":                   func() error { _, err := berg.Challenges(ns).List(ctx, all); return err },
			"ChallengeCheck":              func() error { _, err := berg.ChallengeChecks(ns).List(ctx, all); return err },
			"ChallengeInstance":           func() error { _, err := berg.ChallengeInstances(ns).List(ctx, all); return err },
			"ChallengeInstanceRecord":     func() error { _, err := berg.ChallengeInstanceRecords(ns).List(ctx, all); return err },
			"HexaCTF's Challenge":         func() error { _, err := hexactf.Challenges(ns).List(ctx, all); return err },
			"ChallengeDefinition":         func() error { _, err := hexactf.ChallengeDefinitions(ns).List(ctx, all); return err },
			"Project":                     func() error { _, err := kibaship.Projects().List(ctx, all); return err },
			"Application":                 func() error { _, err := kibaship.Applications(ns).List(ctx, all); return err },
			"Deployment":                  func() error { _, err := kibaship.Deployments(ns).List(ctx, all); return err },
			"Environment":                 func() error { _, err := quix.Environments().List(ctx, all); return err },
			"ContainerNetwork":            func() error { _, err := tunnel.ContainerNetworks().List(ctx, all); return err },
			"ContainerNetworkTunnelProxy": func() error { _, err := tunnel.ContainerNetworkTunnelProxies().List(ctx, all); return err },
		} {
			Expect(list()).To(Succeed(), kind)
		}
		for version, applied := range map[string]*string{
			bergv1.GroupVersion.String():           bergapply.Challenge("a", ns).APIVersion,
			hexactfv1alpha1.GroupVersion.String():  hexactfapply.Challenge("a", ns).APIVersion,
			kibashipv1alpha1.GroupVersion.String(): kibashipapply.Project("a").APIVersion,
			quixv1.GroupVersion.String():           quixapply.Environment("a").APIVersion,
			tunnelv1.GroupVersion.String():         tunnelapply.ContainerNetwork("a").APIVersion,
		} {
			Expect(applied).To(HaveValue(Equal(version)))
		}
	})
})
