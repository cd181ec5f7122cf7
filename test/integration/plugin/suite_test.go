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

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
)

var (
	// program is the path of kubectl-berg, kubeconfig that of its kubeconfig.
	program, kubeconfig string
	cfg                 config.Berg
)

func TestIntegration(t *testing.T) { apiserver.Run(t, "The plugin of kubectl") }

var _ = AfterEach(bergtest.NoViolations)

var _ = inprocess.Suite{
	Before: func(ctx context.Context) map[string]string {
		kubeconfig = os.Getenv("KUBECONFIG")
		program = filepath.Join(GinkgoT().TempDir(), "kubectl-berg")
		build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-ldflags=-X main.version=v0.1.0-test", "-o", program, "./cmd/kubectl-berg")
		build.Dir = "../../.."
		text, err := build.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(text))
		cfg = bergtest.Settings(inprocess.With(nil))
		bergtest.WatchAll()
		return nil
	},
	Gone:     bergtest.NoneLeft,
	Prefixes: []string{manifests.NamespacePrefix},
}.Register()
