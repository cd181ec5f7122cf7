package berg

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
	"github.com/bergctf/berg-operator/test/lib/deployed"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/journey"
	"github.com/bergctf/berg-operator/test/lib/limits"
)

// test/integration/plugin tests what the plugin does with an API server only.
var _ = Describe("kubectl berg", Ordered, Label("versions"), func() {
	berg := buildPlugin()

	It("connects to TCP and UDP on a node port, and reports a port that does not answer", func(ctx SpecContext) {
		stage := journey.NewStage(ctx)
		stage.Challenge(ctx, "ports", everyPort())
		instance := stage.Start(ctx, stage.Instance("ports"))
		running := instance.ExpectPhase(ctx, deployed.StartLimit, bergv1.PhaseRunning)
		join := func(service, text string) (pluginRun, error) {
			return berg.feed(ctx, text, "connect", running.Name, service, "-n", stage.Namespace, "--via", world.NodeAddress)
		}
		for _, service := range []string{"echo", "echo-datagrams"} {
			// kube-proxy observes the readiness of the pod independently.
			expect.Until(ctx, deployed.ReactLimit, func(context.Context) error {
				ran, err := join(service, "over "+service+"\n")
				if err != nil {
					return err
				}
				return deployed.ErrorIf(ran.code != console.ExitOK || ran.out != "over "+service+"\n", ran.String())
			})
		}
		// No process listens on this address, with any Gateway.
		ran, err := berg.feed(ctx, "", "connect", running.Name, "echo", "-n", stage.Namespace, "--via", "127.255.255.254")
		Expect(err).NotTo(HaveOccurred())
		Expect(ran.code).To(Equal(console.ExitUnreachable), ran.String())
		Expect(ran.err).To(ContainSubstring("kubectl berg doctor checks DNS and Gateway"))
	}, SpecTimeout(deployed.SpecLimit))

	It("prints logs, also of previous runs, and follows them to the end of the instance", func(ctx SpecContext) {
		const words = "ending with exit code 3 as TOOLBOX_EXIT asks"
		stage := journey.NewStage(ctx)
		broken := journey.Toolbox("broken")
		broken.Environment = map[string]bergv1.EnvironmentValue{"TOOLBOX_EXIT": bergv1.StringValue("3")}
		// Never ready, so that the time between two crashes does not count as ready.
		broken.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
			Exec: &corev1.ExecAction{Command: []string{"cat", "/no-such-file"}},
		}}
		stage.Challenge(ctx, "half", broken, journey.Toolbox("silent"))
		instance := stage.Start(ctx, stage.Instance("half"))
		instance.ExpectCondition(ctx, deployed.StartLimit, bergv1.ConditionPodsReady, metav1.ConditionFalse, "CrashLoopBackOff")
		name := instance.Now().Name

		all := berg.run(ctx, "logs", name, "-n", stage.Namespace)
		Expect(all.code).To(Equal(console.ExitOK), all.String())
		Expect(all.out).To(ContainSubstring("broken │ " + words))
		Eventually(func(g Gomega, ctx context.Context) { // after its second start there is a previous run
			one := berg.run(ctx, "logs", name, "-n", stage.Namespace, "-c", "broken", "--previous", "--tail", "1")
			g.Expect(one.code).To(Equal(console.ExitOK), one.String())
			g.Expect(one.out).To(Equal(words + "\n"))
		}).WithContext(ctx).WithTimeout(deployed.StartLimit).Should(Succeed())
		Expect(berg.run(ctx, "logs", name, "-n", stage.Namespace, "-c", "missing").code).To(Equal(console.ExitNotFound))
		reason := berg.run(ctx, "why", name, "-n", stage.Namespace)
		Expect(reason.code).To(Equal(console.ExitProblem), reason.String())
		Expect(reason.out).To(And(ContainSubstring("broken"), ContainSubstring("exit code 3")))

		ended := make(chan pluginRun, 1)
		go func() {
			defer GinkgoRecover()
			ended <- berg.run(ctx, "logs", name, "-n", stage.Namespace, "-f")
		}()
		instance.Delete(ctx)
		instance.ExpectEnd(ctx)
		var followed pluginRun
		Eventually(ctx, ended).WithTimeout(deployed.ReactLimit).Should(Receive(&followed))
		Expect(followed.code).To(Equal(console.ExitOK), followed.String())
	}, SpecTimeout(deployed.SpecLimit))
})

var _ = Describe("kubectl berg at a Gateway", Label("network"), Serial, Ordered, func() {
	berg := buildPlugin()

	It("connects by HTTPS and TLS, and trusts only the authority of --ca", func(ctx SpecContext) {
		stage := journey.NewStage(ctx)
		_, running := startExposed(ctx, stage)
		join := func(text string, more ...string) pluginRun {
			GinkgoHelper()
			args := append([]string{"connect", running.Name, "-n", stage.Namespace, "--via", world.NodeAddress}, more...)
			ran, err := berg.feed(ctx, text, args...)
			Expect(err).NotTo(HaveOccurred())
			return ran
		}
		ca := authorityFile()
		expect.Until(ctx, deployed.ReactLimit, func(context.Context) error {
			ran := join("", "web", "--ca", ca)
			return deployed.ErrorIf(ran.code != console.ExitOK || !strings.Contains(ran.err, "the service answered 200 OK"), ran.String())
		})
		expect.Until(ctx, deployed.ReactLimit, func(context.Context) error {
			ran := join("hello\n", "line", "--ca", ca)
			return deployed.ErrorIf(ran.code != console.ExitOK || ran.out != "hello\n", ran.String())
		})
		for _, service := range []string{"web", "line"} {
			ran := join("hello\n", service)
			Expect(ran.code).To(Equal(console.ExitProblem), ran.String())
			Expect(ran.err).To(ContainSubstring("is not trusted"))
		}
	}, SpecTimeout(deployed.SpecLimit))

	It("checks listeners, certificates and policies, and reports problems", func(ctx SpecContext) {
		stage := journey.NewStage(ctx)
		stage.Challenge(ctx, "exposed", exposedBox())
		look := func(environment ...string) (pluginRun, map[string]diagnosis) {
			GinkgoHelper()
			ran := berg.withoutNames(ctx, environment, "doctor", "-n", stage.Namespace, "-o", "json")
			var report struct{ Checks []diagnosis }
			Expect(json.Unmarshal([]byte(ran.out), &report)).To(Succeed(), ran.String())
			found := map[string]diagnosis{}
			for _, d := range report.Checks {
				found[d.Check] = d
			}
			return ran, found
		}

		ran, found := look("SSL_CERT_FILE=" + authorityFile())
		Expect(ran.code).To(Equal(console.ExitOK), ran.String())
		for check, text := range map[string]string{
			"Gateway API":    "HTTPRoute and TLSRoute are served",
			"Gateway":        setting("GATEWAY_NAMESPACE") + "/" + setting("GATEWAY_NAME") + " works at " + world.NodeAddress,
			"listener http":  "HTTPS on port " + setting("CHALLENGE_HTTP_PORT") + " for *." + setting("CHALLENGE_DOMAIN"),
			"listener tls":   "TLS on port " + setting("CHALLENGE_TLS_PORT") + " for *." + setting("CHALLENGE_DOMAIN"),
			"network policy": "NETWORK_POLICY=cilium",
			"operator":       "replicas are ready in " + world.Operator.Namespace,
		} {
			Expect(found).To(HaveKeyWithValue(check, And(HaveField("Level", "ok"), HaveField("Text", ContainSubstring(text)))))
		}
		// The certificates of the test clusters are valid for two weeks, for which doctor warns.
		for _, check := range []string{"certificate, HTTPS", "certificate, TLS"} {
			Expect(found).To(HaveKeyWithValue(check, HaveField("Text", HavePrefix("it expires in "))))
		}

		_, found = look()
		Expect(found).To(HaveKeyWithValue("certificate, HTTPS", And(HaveField("Level", "warning"), HaveField("Text", HavePrefix("browsers reject it")))))

		const name = "CHALLENGE_HTTP_LISTENER_NAME"
		withSetting(ctx, name, "missing")
		ran, found = look()
		Expect(ran.code).To(Equal(console.ExitProblem), ran.String())
		Expect(found).To(HaveKeyWithValue("listener missing", And(
			HaveField("Level", "problem"), HaveField("Text", "the Gateway has no listener with this name"), HaveField("Do", "Add the listener, or set "+name+"."))))
	}, SpecTimeout(deployed.SpecLimit))
})

// diagnosis is a result of doctor.
type diagnosis struct{ Check, Level, Text, Do string }

// plugin is kubectl-berg, built before the specs of a container.
type plugin struct{ program string }

func buildPlugin() *plugin {
	p := &plugin{}
	BeforeAll(func(ctx SpecContext) {
		folder, err := os.MkdirTemp("", "berg-e2e-plugin-")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(os.RemoveAll, folder)
		p.program = filepath.Join(folder, "kubectl-berg")
		build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", p.program, "./cmd/kubectl-berg")
		build.Dir = filepath.Join("..", "..", "..")
		text, err := build.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(text))
	}, NodeTimeout(limits.Scaled(5*time.Minute)))
	return p
}

// pluginRun is what one run left.
type pluginRun struct {
	out, err string
	code     int
}

func (r pluginRun) String() string { return fmt.Sprintf("exit code %d\n%s%s", r.code, r.out, r.err) }

// pluginLimit ends a run that hangs.
var pluginLimit = limits.Scaled(30 * time.Second)

func (p *plugin) run(ctx context.Context, args ...string) pluginRun {
	GinkgoHelper()
	ran, err := p.feed(ctx, "", args...)
	Expect(err).NotTo(HaveOccurred())
	return ran
}

// feed runs the plugin with standard input.
func (p *plugin) feed(ctx context.Context, in string, args ...string) (pluginRun, error) {
	return p.start(ctx, in, nil, p.program, args...)
}

// withoutNames runs the plugin without DNS: a lookup must not leave this machine.
func (p *plugin) withoutNames(ctx context.Context, environment []string, args ...string) pluginRun {
	GinkgoHelper()
	resolver := filepath.Join(GinkgoT().TempDir(), "resolv.conf")
	Expect(os.WriteFile(resolver, []byte("nameserver 127.255.255.254\noptions timeout:1 attempts:1\n"), 0o600)).To(Succeed())
	const script = `mount --bind "$0" /etc/resolv.conf && exec "$@"`
	ran, err := p.start(ctx, "", environment, "unshare", append([]string{"--mount", "sh", "-c", script, resolver, p.program}, args...)...)
	Expect(err).NotTo(HaveOccurred())
	return ran
}

func (p *plugin) start(ctx context.Context, in string, environment []string, program string, args ...string) (pluginRun, error) {
	ctx, cancel := context.WithTimeout(ctx, deployed.DeleteLimit+pluginLimit)
	defer cancel()
	command := exec.CommandContext(ctx, program, args...)
	command.Env = append(os.Environ(), environment...)
	command.Stdin = strings.NewReader(in)
	var out, err bytes.Buffer
	command.Stdout, command.Stderr = &out, &err
	failed := command.Run()
	var exit *exec.ExitError
	if failed != nil && !errors.As(failed, &exit) {
		return pluginRun{}, failed
	}
	return pluginRun{out.String(), err.String(), command.ProcessState.ExitCode()}, nil
}

// authorityFile is a file with the certificate of the cluster's authority, until the spec ends.
func authorityFile() string {
	GinkgoHelper()
	file := filepath.Join(GinkgoT().TempDir(), "ca.crt")
	Expect(os.WriteFile(file, world.Rest.CAData, 0o600)).To(Succeed())
	return file
}
