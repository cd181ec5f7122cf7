package operator

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/installed"
	"github.com/bergctf/berg-operator/test/lib/launch"
	"github.com/bergctf/berg-operator/test/lib/limits"
	"github.com/bergctf/berg-operator/test/lib/scrape"
)

var (
	// build is the operator's program. The suite removes it at its end.
	build launch.Build
	// program is its path.
	program string
)

// withProcesses prepares a container of specs for operators that run as processes
// of their own: the operator in this process rests during that time.
func withProcesses() {
	BeforeAll(func(ctx context.Context) {
		var err error
		program, err = build.Program(ctx)
		Expect(err).NotTo(HaveOccurred())
		inprocess.Pause()
	}, NodeTimeout(limits.Scaled(10*time.Minute)))
}

// process is an operator that runs by itself, with the rights of the deployed one.
// All its requests to the API server pass its gate.
type process struct {
	*launch.Operator
	*launch.Process
	gate gate
	log  log
}

// log is what an operator has said.
type log struct{ of *launch.Operator }

func (l log) String() string { return l.of.Text() }

// start starts an operator. It ends with the spec at the latest.
func start(ctx context.Context, env ...string) *process {
	GinkgoHelper()
	return prepare(ctx, env...).begin()
}

// prepare makes everything ready for an operator to begin.
func prepare(ctx context.Context, env ...string) *process {
	GinkgoHelper()
	account, err := launch.Account(ctx, restConfig, installed.Namespace, installed.Account)
	Expect(err).NotTo(HaveOccurred())
	p := &process{gate: newGate(account)}
	folder := GinkgoT().TempDir()
	settings := launch.Settings{
		Program: program, Namespace: installed.Namespace, Env: append([]string{"PULL_SECRET_NAME=registry"}, env...),
		Kubeconfig: filepath.Join(folder, "kubeconfig"), Log: filepath.Join(folder, "log"),
	}
	Expect(launch.WriteKubeconfig(settings.Kubeconfig, p.gate.Config())).To(Succeed())
	p.Operator, err = launch.New(settings)
	Expect(err).NotTo(HaveOccurred())
	p.log = log{p.Operator}
	return p
}

func (p *process) begin() *process {
	GinkgoHelper()
	var err error
	p.Process, err = p.Start()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() {
		p.Kill()
		if CurrentSpecReport().Failed() {
			AddReportEntry("log of process "+strconv.Itoa(p.PID()), p.Text())
		}
	})
	return p
}

// ready waits until the operator can serve.
func (p *process) ready() *process {
	GinkgoHelper()
	Eventually(p.probe).WithArguments("/readyz").Should(Equal(http.StatusOK), "%s", p.log)
	return p
}

// leads waits until the operator holds the lease.
func (p *process) leads(ctx context.Context) *process {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(p.Text()).To(ContainSubstring("Successfully acquired lease"))
		g.Expect(holder(ctx)).NotTo(BeEmpty())
	}).Should(Succeed())
	return p
}

// probe asks for a health endpoint and returns the status, 0 for no answer.
func (p *process) probe(path string) int {
	status, _ := p.Probe(context.Background(), path)
	return status
}

// reported is the body of a health endpoint.
func (p *process) reported(path string) string {
	GinkgoHelper()
	status, text := p.Probe(context.Background(), path)
	Expect(status).NotTo(BeZero(), "no answer")
	return text
}

// scrape asks for the metrics and returns the status and what there is, by name
// and labels.
func (p *process) scrape(ctx context.Context, token string) (int, map[string]float64) {
	GinkgoHelper()
	var all scrape.Metrics
	code := http.StatusOK
	Eventually(func() error { // it makes its certificate, for itself, after it is ready
		var err error
		all, err = scrape.Fetch(ctx, "https://"+p.Metrics+"/metrics", token)
		if refused := (&scrape.StatusError{}); errors.As(err, &refused) {
			code = refused.Code
			return nil
		}
		return err
	}).Should(Succeed())
	return code, all.Series()
}

func (p *process) send(signal os.Signal) time.Time {
	GinkgoHelper()
	Expect(p.Signal(signal)).To(Succeed())
	return time.Now()
}

// exits waits for the end and returns the exit code.
func (p *process) exits() int {
	GinkgoHelper()
	Eventually(p.Exited()).Should(BeClosed(), "%s", p.log)
	return p.ExitCode()
}

// errorLines are the lines of the log that an administrator would worry about.
func (p *process) errorLines() []string {
	var out []string
	for line := range strings.Lines(p.Text()) {
		var entry struct{ Level string }
		if err := json.Unmarshal([]byte(line), &entry); err != nil || entry.Level == "error" {
			out = append(out, line)
		}
	}
	return out
}

// holder is the holder of the lease, "" if there is none.
func holder(ctx context.Context) string {
	GinkgoHelper()
	lease := &coordinationv1.Lease{}
	err := k8s.Get(ctx, client.ObjectKey{Namespace: installed.Namespace, Name: config.DefaultLeaseName}, lease)
	if err != nil || lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// gate is a process's way to the API server.
type gate struct{ *launch.Gate }

// newGate opens a gate for an account. It closes with the spec.
func newGate(account *rest.Config) gate {
	GinkgoHelper()
	g, err := launch.NewGate(account)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(g.Close)
	return gate{g}
}

// holdUp is HoldUp until the spec ends.
func (g gate) holdUp(match func(*http.Request) bool) (held <-chan struct{}, release func()) {
	held, release = g.HoldUp(match)
	DeferCleanup(release)
	return held, release
}

// work are the writes since a time, but for what says only that the process lives
// and what it has done before.
func (g gate) work(since time.Time) []launch.Write {
	var out []launch.Write
	for _, w := range g.Writes(since) {
		alive := strings.Contains(w.Path, "/leases") || strings.Contains(w.Path, "/events")
		if strings.Contains(w.Path, "/namespaces") && !alive {
			out = append(out, w)
		}
	}
	return out
}
