// Package plugin tests kubectl-berg as people and scripts run it: the program itself, against a real API
// server with simulated nodes, in pipes and in a pseudo-terminal. The operator runs in the process of the
// tests.
//
// It needs KUBECONFIG; make test brings up the cluster and sets it.
package plugin

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/bergctf/berg-operator/internal/berg"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/limits"
)

var (
	// program is the path of kubectl-berg, kubeconfig that of its kubeconfig.
	program, kubeconfig string
	cfg                 config.Berg
)

func TestIntegration(t *testing.T) {
	if os.Getenv("KUBECONFIG") == "" {
		t.Skip("KUBECONFIG is not set: make test brings up a cluster and sets it")
	}
	RegisterFailHandler(Fail)
	apiserver.SetDefaults()
	RunSpecs(t, "The plugin of kubectl")
}

var _ = BeforeSuite(func(ctx context.Context) {
	apiserver.Connect()
	apiserver.Install(ctx)
	kubeconfig = os.Getenv("KUBECONFIG")
	program = filepath.Join(GinkgoT().TempDir(), "kubectl-berg")
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-ldflags=-X main.version=v0.1.0-test", "-o", program, "./cmd/kubectl-berg")
	build.Dir = "../../.."
	text, err := build.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(text))
	inprocess.Load(inprocess.With(nil), berg.New(&cfg))
	bergtest.WatchAll()
	inprocess.Begin()
}, NodeTimeout(limits.Scaled(5*time.Minute)))

var _ = AfterEach(bergtest.NoViolations)

var _ = AfterSuite(func(ctx context.Context) {
	if apiserver.Client == nil {
		return
	}
	bergtest.NoneLeft(ctx)
	inprocess.End()
	apiserver.DeleteNamespaces(ctx, manifests.NamespacePrefix)
}, NodeTimeout(limits.Scaled(4*time.Minute)))
