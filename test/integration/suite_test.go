// Package integration runs the operator in this process against a real API
// server with simulated nodes: real Deployments, real garbage collection and
// real deletion of namespaces, pods that only seem to run.
//
// It needs KUBECONFIG; make test brings up the cluster and sets it.
package integration

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/yaml"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	"github.com/bergctf/berg-operator/cmd/berg-operator/families"
	"github.com/bergctf/berg-operator/internal/berg"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/family"
	"github.com/bergctf/berg-operator/internal/kit/settings"
	"github.com/bergctf/berg-operator/internal/operator"
	"github.com/bergctf/berg-operator/internal/quix"
)

const (
	// patience bounds every wait: it is long because a busy machine is slow, and
	// costs nothing where things go well.
	patience = 3 * time.Minute
	glance   = 100 * time.Millisecond
)

var (
	k8s        client.WithWatch
	restConfig *rest.Config
	cfg        configuration
	// environment is that of the operator that all specs share.
	environment = map[string]string{"PULL_SECRET_NAME": "registry", "POD_NAMESPACE": operatorNamespace, "CHALLENGE_START_DEADLINE": "1h"}
	// stopOperator ends the operator that all specs share; nil while it is paused.
	stopOperator func()
)

func TestIntegration(t *testing.T) {
	if os.Getenv("KUBECONFIG") == "" {
		t.Skip("KUBECONFIG is not set: make test brings up a cluster and sets it")
	}
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(patience)
	SetDefaultEventuallyPollingInterval(glance)
	EnforceDefaultTimeoutsWhenUsingContexts()
	RunSpecs(t, "integration")
}

var _ = BeforeSuite(func(ctx context.Context) {
	ctrl.SetLogger(zap.New(zap.WriteTo(GinkgoWriter), zap.UseDevMode(true)))
	var err error
	restConfig, err = clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	Expect(err).NotTo(HaveOccurred())
	restConfig.QPS = -1

	scheme, err := operator.NewScheme(families.All()...)
	Expect(err).NotTo(HaveOccurred())
	Expect(authorizationv1.AddToScheme(scheme)).To(Succeed())
	k8s, err = client.NewWithWatch(restConfig, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	installCRDs(ctx)
	installRights(ctx)

	watchInvariants()
	cfg = load(environment)
	stopOperator = start(cfg, nil)
})

// configuration is what an operator is started with. A spec may change its copy.
type configuration struct {
	config.Berg
	Environment config.Quix
	Process     config.Process
}

// families are those that the configuration enables, with its settings.
func (c configuration) families() []family.Family {
	all := []family.Family{berg.New(&c.Berg), quix.New(&c.Environment)}
	return slices.DeleteFunc(all, func(f family.Family) bool { return !slices.Contains(c.Process.EnabledAPIs, f.API) })
}

// load makes a configuration from variables; nothing is served.
func load(env map[string]string) configuration {
	var c configuration
	all := []family.Family{berg.New(&c.Berg), quix.New(&c.Environment)}
	_, err := settings.Load("", operator.Sections(&c.Process, all),
		[]string{"--leader-elect=false", "--metrics-bind-address=0", "--health-probe-bind-address=127.0.0.1:0"},
		func(name string) string { return env[name] }, nil)
	Expect(err).NotTo(HaveOccurred())
	return c
}

// start runs an operator until stop is called. wrap, if given, wraps its
// transport to the API server.
func start(c configuration, wrap func(http.RoundTripper) http.RoundTripper) (stop func()) {
	return startAt(c, clock.RealClock{}, wrap)
}

// startAt is start at another time.
func startAt(c configuration, now clock.PassiveClock, wrap func(http.RoundTripper) http.RoundTripper) (stop func()) {
	rc := rest.CopyConfig(restConfig)
	rc.Impersonate = rest.ImpersonationConfig{UserName: operatorUser}
	if wrap != nil {
		rc.Wrap(wrap)
	}
	ctx, cancel := context.WithCancel(context.Background())
	mgr, err := operator.New(ctx, rc, c.Process, c.families(), operator.Options{SkipNameValidation: true, Clock: now})
	Expect(err).NotTo(HaveOccurred())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	Eventually(mgr.Elected()).Should(BeClosed()) // its caches are filled before
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		Eventually(ended).Should(Receive(BeNil()))
	}
	return stop
}

// pause stops the operator that all specs share until resume is called, at the
// latest until the spec ends.
func pause() (resume func()) {
	GinkgoHelper()
	if stopOperator != nil {
		stopOperator()
		stopOperator = nil
	}
	resume = func() {
		if stopOperator == nil {
			stopOperator = start(cfg, nil)
		}
	}
	DeferCleanup(resume)
	return resume
}

// instead runs another operator in place of the shared one until stop is called,
// at the latest until the spec ends.
func instead(now clock.PassiveClock, c configuration, wrap func(http.RoundTripper) http.RoundTripper) (stop func()) {
	GinkgoHelper()
	pause()
	stop = startAt(c, now, wrap)
	DeferCleanup(func() { stop() })
	return stop
}

// counting counts the requests that change an instance or something of it.
type counting struct {
	next     http.RoundTripper
	instance *bergv1.ChallengeInstance
	writes   *atomic.Int64
}

func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	about := strings.Contains(r.URL.Path, c.instance.Status.Namespace) || strings.Contains(r.URL.Path, "/challengeinstances/"+c.instance.Name)
	if r.Method != http.MethodGet && about {
		c.writes.Add(1)
	}
	return c.next.RoundTrip(r)
}

func installCRDs(ctx context.Context) {
	paths, err := filepath.Glob("../../config/*/crd/bases/*.yaml")
	Expect(err).NotTo(HaveOccurred())
	Expect(paths).NotTo(BeEmpty())
	for _, path := range paths {
		data, err := os.ReadFile(path)
		Expect(err).NotTo(HaveOccurred())
		crd := &unstructured.Unstructured{}
		Expect(yaml.Unmarshal(data, &crd.Object)).To(Succeed())
		installCRD(ctx, crd)
	}
}

// installCRD installs a definition and waits until the API server serves it.
func installCRD(ctx context.Context, crd *unstructured.Unstructured) {
	GinkgoHelper()
	Expect(k8s.Apply(ctx, client.ApplyConfigurationFromUnstructured(crd), client.FieldOwner("integration"), client.ForceOwnership)).To(Succeed())
	Eventually(func(g Gomega) {
		g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(crd), crd)).To(Succeed())
		conditions, _, err := unstructured.NestedSlice(crd.Object, "status", "conditions")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(conditions).To(ContainElement(And(HaveKeyWithValue("type", "Established"), HaveKeyWithValue("status", "True"))))
	}).Should(Succeed())
}

// newNamespace makes a namespace for the resources of one spec. At its end its
// instances are deleted; the suite ends by waiting until all of them are gone.
func newNamespace(ctx context.Context) string {
	GinkgoHelper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: namespacePrefix}}
	Expect(k8s.Create(ctx, ns)).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		Eventually(func() error { // of hundreds, one request may take too long
			return k8s.DeleteAllOf(ctx, &bergv1.ChallengeInstance{}, client.InNamespace(ns.Name))
		}).Should(Succeed())
	})
	return ns.Name
}

const namespacePrefix = "integration-"

// Whatever the specs did, no instance, no environment and no namespace of an
// instance is left over.
var _ = AfterSuite(func(ctx context.Context) {
	gexec.CleanupBuildArtifacts()
	if k8s == nil {
		return
	}
	Eventually(func(g Gomega) {
		var instances bergv1.ChallengeInstanceList
		g.Expect(k8s.List(ctx, &instances)).To(Succeed())
		g.Expect(instances.Items).To(BeEmpty())
		var environments quixv1.EnvironmentList
		g.Expect(k8s.List(ctx, &environments)).To(Succeed())
		g.Expect(environments.Items).To(BeEmpty())
	}).WithTimeout(3 * time.Minute).Should(Succeed())
	if stopOperator != nil {
		stopOperator()
	}
	var namespaces corev1.NamespaceList
	Expect(k8s.List(ctx, &namespaces)).To(Succeed())
	for _, ns := range namespaces.Items {
		Expect(ns.Name).NotTo(HavePrefix(challengeinstance.NamespacePrefix), "a namespace is left over")
		if strings.HasPrefix(ns.Name, namespacePrefix) {
			Expect(k8s.Delete(ctx, &ns)).To(Succeed())
		}
	}
}, NodeTimeout(4*time.Minute))

// challenge creates a Challenge from the YAML of its spec.
func challenge(ctx context.Context, namespace, name, spec string) *bergv1.Challenge {
	GinkgoHelper()
	c := &bergv1.Challenge{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	parse(spec, &c.Spec)
	Expect(k8s.Create(ctx, c)).To(Succeed())
	return c
}

func parse(text string, into any) {
	GinkgoHelper()
	Expect(yaml.UnmarshalStrict([]byte(text), into)).To(Succeed())
}

// instance creates a ChallengeInstance of an owner of its own.
func instance(ctx context.Context, namespace, challenge string, modify ...func(*bergv1.ChallengeInstance)) *bergv1.ChallengeInstance {
	GinkgoHelper()
	i := &bergv1.ChallengeInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "instance-"},
		Spec: bergv1.ChallengeInstanceSpec{
			ChallengeRef: bergv1.ChallengeReference{Name: challenge, Namespace: namespace},
			OwnerID:      uuid.NewString(),
			Flag:         "flag{integration}",
		},
	}
	for _, m := range modify {
		m(i)
	}
	Expect(k8s.Create(ctx, i)).To(Succeed())
	return i
}

// reaches waits until an instance has a phase, and refreshes it.
func reaches(ctx context.Context, i *bergv1.ChallengeInstance, phase bergv1.Phase) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(i), i)).To(Succeed())
		g.Expect(i.Status.Phase).To(Equal(phase), "conditions: %s", conditions(i))
	}).Should(Succeed())
}

// shows waits until a condition has a status and a reason.
func shows(ctx context.Context, i *bergv1.ChallengeInstance, conditionType string, status metav1.ConditionStatus, reason string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(i), i)).To(Succeed())
		c := meta.FindStatusCondition(i.Status.Conditions, conditionType)
		g.Expect(c).NotTo(BeNil())
		g.Expect(fmt.Sprint(c.Status, "/", c.Reason)).To(Equal(fmt.Sprint(status, "/", reason)), "conditions: %s", conditions(i))
	}).Should(Succeed())
}

func conditions(i *bergv1.ChallengeInstance) string {
	var b strings.Builder
	for _, c := range i.Status.Conditions {
		fmt.Fprintf(&b, "%s=%s/%s (%s); ", c.Type, c.Status, c.Reason, c.Message)
	}
	return b.String()
}

// gone waits until neither an instance nor its namespace exists.
func gone(ctx context.Context, i *bergv1.ChallengeInstance) {
	GinkgoHelper()
	goneWithin(ctx, i, patience)
}

func goneWithin(ctx context.Context, i *bergv1.ChallengeInstance, limit time.Duration) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(apierrors.IsNotFound(k8s.Get(ctx, client.ObjectKeyFromObject(i), &bergv1.ChallengeInstance{}))).To(BeTrue(), "the instance exists")
	}).WithTimeout(limit).Should(Succeed())
	// The finalizer goes after the namespace, never before.
	Expect(namespaceExists(ctx, i)).To(BeFalse(), "the namespace exists")
}

func namespaceExists(ctx context.Context, i *bergv1.ChallengeInstance) bool {
	GinkgoHelper()
	err := k8s.Get(ctx, client.ObjectKey{Name: challengeinstance.NamespaceName(i.Spec.OwnerID)}, &corev1.Namespace{})
	if apierrors.IsNotFound(err) {
		return false
	}
	Expect(err).NotTo(HaveOccurred())
	return true
}
