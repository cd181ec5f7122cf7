package integration

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	yamlstream "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/operator"
	"github.com/bergctf/berg-operator/test/installed"
)

const (
	// Names that config/default gives to what it installs.
	operatorNamespace = installed.Namespace
	operatorAccount   = installed.Account
)

// withProcesses prepares a container of specs for operators that run as processes
// of their own: the operator in this process rests meanwhile.
func withProcesses() {
	BeforeAll(func(ctx context.Context) {
		Expect(authenticationv1.AddToScheme(k8s.Scheme())).To(Succeed())
		Expect(coordinationv1.AddToScheme(k8s.Scheme())).To(Succeed())
		installRights(ctx)
		if program == "" {
			var err error
			program, err = gexec.Build("github.com/bergctf/berg-operator/cmd/berg-operator")
			Expect(err).NotTo(HaveOccurred())
		}
		stopOperator()
	}, NodeTimeout(10*time.Minute))
	AfterAll(func() { stopOperator = start(cfg, nil) })
}

// program is the built operator. The suite removes it at its end.
var program string

// installRights creates what config/default gives the operator: its account and
// its rights, no more. They stay: a namespace that is on its way out would be in
// the way of the next specs.
func installRights(ctx context.Context) {
	GinkgoHelper()
	manifests, err := exec.CommandContext(ctx, "kubectl", "kustomize", "../../config/default").Output()
	Expect(err).NotTo(HaveOccurred())
	documents := yamlstream.NewYAMLOrJSONDecoder(bytes.NewReader(manifests), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := documents.Decode(object); err != nil {
			Expect(err).To(MatchError(io.EOF))
			return
		}
		switch object.GetKind() {
		case "Namespace", "ServiceAccount", "Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding":
			Expect(k8s.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("integration"), client.ForceOwnership)).To(Succeed())
		}
	}
}

// tokenOf returns a token of a ServiceAccount.
func tokenOf(ctx context.Context, namespace, name string) string {
	GinkgoHelper()
	request := &authenticationv1.TokenRequest{}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	Expect(k8s.SubResource("token").Create(ctx, account, request)).To(Succeed())
	return request.Status.Token
}

// process is an operator that runs by itself, with the rights of the deployed one.
// Whatever it says to the API server passes its gate.
type process struct {
	*exec.Cmd
	gate            *gate
	log             *lockedBuffer
	probes, metrics string
	exited          chan struct{}
}

// launch starts an operator. It ends with the spec at the latest.
func launch(ctx context.Context, env ...string) *process {
	GinkgoHelper()
	return prepare(ctx, env...).begin()
}

// prepare makes everything ready for an operator to begin.
func prepare(ctx context.Context, env ...string) *process {
	GinkgoHelper()
	p := &process{
		gate: newGate(tokenOf(ctx, operatorNamespace, operatorAccount)), log: &lockedBuffer{}, probes: freeAddress(), metrics: freeAddress(),
		exited: make(chan struct{}),
	}
	DeferCleanup(p.gate.server.Close)
	kubeconfig := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(os.WriteFile(kubeconfig, fmt.Appendf(nil, `
apiVersion: v1
kind: Config
clusters: [{name: gate, cluster: {server: %q}}]
contexts: [{name: gate, context: {cluster: gate}}]
current-context: gate
`, p.gate.server.URL), 0o600)).To(Succeed())
	p.Cmd = exec.Command(program)
	p.Env = append([]string{
		"KUBECONFIG=" + kubeconfig, "POD_NAMESPACE=" + operatorNamespace, "PULL_SECRET_NAME=registry",
		"HEALTH_PROBE_BIND_ADDRESS=" + p.probes, "METRICS_BIND_ADDRESS=" + p.metrics,
	}, env...)
	p.Stdout, p.Stderr = p.log, p.log
	return p
}

func (p *process) begin() *process {
	GinkgoHelper()
	Expect(p.Start()).To(Succeed())
	go func() {
		defer close(p.exited)
		_ = p.Wait() // the exit code is looked at where it matters
	}()
	DeferCleanup(func() {
		_ = p.Process.Signal(syscall.SIGCONT)
		_ = p.Process.Kill()
		<-p.exited
		if CurrentSpecReport().Failed() {
			AddReportEntry("log of process "+strconv.Itoa(p.Process.Pid), p.log.String())
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
		g.Expect(p.log.String()).To(ContainSubstring("Successfully acquired lease"))
		g.Expect(holder(ctx)).NotTo(BeEmpty())
	}).Should(Succeed())
	return p
}

// probe asks for a health endpoint and returns the status, 0 for no answer.
func (p *process) probe(path string) int {
	response, err := http.Get("http://" + p.probes + path)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	return response.StatusCode
}

// told is what a health endpoint says.
func (p *process) told(path string) string {
	GinkgoHelper()
	response, err := http.Get("http://" + p.probes + path)
	Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	Expect(err).NotTo(HaveOccurred())
	return string(body)
}

// scrape asks for the metrics and returns the status and what there is, by name
// and labels.
func (p *process) scrape(ctx context.Context, token string) (int, map[string]float64) {
	GinkgoHelper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+p.metrics+"/metrics", nil)
	Expect(err).NotTo(HaveOccurred())
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	insecure := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
	var response *http.Response
	Eventually(func() (err error) { // it makes its certificate, for itself, after it is ready
		response, err = insecure.RoundTrip(request) //nolint:bodyclose // closed below
		return err
	}).Should(Succeed())
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	Expect(err).NotTo(HaveOccurred())
	return response.StatusCode, series(string(body))
}

// series parses the text format: everything up to the last space is what is
// measured.
func series(text string) map[string]float64 {
	all := map[string]float64{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		at := strings.LastIndexByte(line, ' ')
		if at < 0 || line[0] == '#' {
			continue
		}
		if value, err := strconv.ParseFloat(line[at+1:], 64); err == nil {
			all[line[:at]] = value
		}
	}
	return all
}

func (p *process) send(signal os.Signal) time.Time {
	GinkgoHelper()
	Expect(p.Process.Signal(signal)).To(Succeed())
	return time.Now()
}

// exits waits for the end and returns the exit code.
func (p *process) exits() int {
	GinkgoHelper()
	Eventually(p.exited).Should(BeClosed(), "%s", p.log)
	return p.ProcessState.ExitCode()
}

// complaints are the lines of the log that an administrator would worry about.
func (p *process) complaints() []string {
	var out []string
	for line := range strings.Lines(p.log.String()) {
		var entry struct{ Level string }
		if err := json.Unmarshal([]byte(line), &entry); err != nil || entry.Level == "error" {
			out = append(out, line)
		}
	}
	return out
}

// admissionSays makes the API server refuse the Deployments of a Challenge, or warn of
// them, with a text: an expression of CEL over the Deployment.
func admissionSays(ctx context.Context, challenge, action, text string) {
	GinkgoHelper()
	policy := object(fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [deployments]}]
  matchConditions:
  - {name: challenge, expression: "object.spec.template.metadata.?labels['%[2]s'].orValue('') == '%[3]s'"}
  validations:
  - {expression: "false", messageExpression: %[4]q}
`, "integration-"+challenge, bergv1.LabelChallenge, challenge, text))
	binding := object(fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s, validationActions: [%[2]s]}
`, policy.GetName(), action))
	for _, object := range []*unstructured.Unstructured{policy, binding} {
		Expect(k8s.Create(ctx, object)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(k8s.Delete(ctx, object)).To(Succeed()) })
	}
	// The API server takes a moment to heed a policy.
	probe := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: policy.GetName()},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{bergv1.LabelChallenge: challenge}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{bergv1.LabelChallenge: challenge}},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "a", Image: "a", Env: []corev1.EnvVar{{Name: "FLAG", Value: "heeded"}},
				}}},
			},
		},
	}
	heard := &warnings{}
	rc := rest.CopyConfig(restConfig)
	rc.WarningHandler = heard
	attentive, err := client.New(rc, client.Options{Scheme: k8s.Scheme()})
	Expect(err).NotTo(HaveOccurred())
	Eventually(func() bool {
		err := attentive.Create(ctx, probe.DeepCopy(), client.DryRunAll)
		return err != nil || heard.any.Load()
	}).Should(BeTrue())
}

// warnings notes whether the API server warned.
type warnings struct{ any atomic.Bool }

func (w *warnings) HandleWarningHeader(int, string, string) { w.any.Store(true) }

// holder is who holds the lease, "" for nobody.
func holder(ctx context.Context) string {
	GinkgoHelper()
	lease := &coordinationv1.Lease{}
	err := k8s.Get(ctx, client.ObjectKey{Namespace: operatorNamespace, Name: operator.LeaseName}, lease)
	if err != nil || lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

func freeAddress() string {
	GinkgoHelper()
	address, err := installed.FreeAddress()
	Expect(err).NotTo(HaveOccurred())
	return address
}

// gate is a process's way to the API server. It remembers what is written, holds
// up what it is told to, and can be shut.
type gate struct {
	server *httptest.Server

	mu     sync.Mutex
	shut   bool
	writes []write
	hold   func(*http.Request) bool
	held   chan struct{} // closed when a request is held up
	let    chan struct{} // closed to let it through
}

// write is a request that changes something, when it came.
type write struct {
	At           time.Time
	Method, Path string
}

// newGate opens a way for requests with a token.
func newGate(token string) *gate {
	GinkgoHelper()
	target, err := url.Parse(restConfig.Host)
	Expect(err).NotTo(HaveOccurred())
	rc := rest.AnonymousClientConfig(restConfig)
	rc.BearerToken = token // a client sends none without TLS
	transport, err := rest.TransportFor(rc)
	Expect(err).NotTo(HaveOccurred())
	forward := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1, // a watch
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	g := &gate{}
	g.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.pass(r)
		forward.ServeHTTP(w, r)
	}))
	return g
}

func (g *gate) pass(r *http.Request) {
	g.mu.Lock()
	if g.shut {
		g.mu.Unlock()
		panic(http.ErrAbortHandler)
	}
	if r.Method != http.MethodGet {
		g.writes = append(g.writes, write{time.Now(), r.Method, r.URL.Path})
	}
	var let chan struct{}
	if g.hold != nil && g.hold(r) {
		g.hold, let = nil, g.let
		close(g.held)
	}
	g.mu.Unlock()
	if let != nil {
		<-let
	}
}

// holdUp keeps the first request that matches waiting. held is closed when it has
// come; let lets it go on.
func (g *gate) holdUp(match func(*http.Request) bool) (held <-chan struct{}, let func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hold, g.held, g.let = match, make(chan struct{}), make(chan struct{})
	let = sync.OnceFunc(func() { close(g.let) })
	DeferCleanup(let)
	return g.held, let
}

// setShut cuts the process off from the API server, or lets it through again.
func (g *gate) setShut(shut bool) {
	g.mu.Lock()
	g.shut = shut
	g.mu.Unlock()
	if shut {
		g.server.CloseClientConnections()
	}
}

// work are the writes since a time, but for what says only that the process lives
// and what it has done before.
func (g *gate) work(since time.Time) []write {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []write
	for _, w := range g.writes {
		alive := strings.Contains(w.Path, "/leases") || strings.Contains(w.Path, "/events")
		if w.At.After(since) && strings.Contains(w.Path, "/namespaces") && !alive {
			out = append(out, w)
		}
	}
	return out
}

type lockedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}
