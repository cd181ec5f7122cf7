// Package gate tests replicas of berg-gate, as processes with the rights of config/gate, against a real API server: what players notice when
// a replica is killed or ends, when the API server is away, and when a certificate changes. The specs play the pods.
//
// It needs KUBECONFIG; make test brings up the cluster and sets it.
package gate

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/gateprocess"
	"github.com/bergctf/berg-operator/test/lib/limits"
)

const (
	namespace = "integration-gate"
	domain    = "gate.example"
)

var (
	k8s     client.WithWatch
	program string
)

func TestIntegration(t *testing.T) { apiserver.Run(t, "The gate") }

var _ = BeforeSuite(func(ctx context.Context) {
	k8s, _ = apiserver.Begin(ctx)
	folder, err := os.MkdirTemp("", "berg-gate-")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(os.RemoveAll, folder)
	program = filepath.Join(folder, "berg-gate")
	output, err := exec.CommandContext(ctx, "go", "build", "-o", program, "github.com/bergctf/berg-operator/cmd/berg-gate").CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(output))
	Expect(gateprocess.Install(ctx, k8s, namespace, domain)).To(Succeed())
}, NodeTimeout(limits.Scaled(5*time.Minute)))

var _ = AfterSuite(func(ctx context.Context) {
	if k8s != nil {
		Expect(client.IgnoreNotFound(k8s.Delete(ctx, gateprocess.NewClass(gateprocess.Class, gateprocess.Controller)))).To(Succeed())
		apiserver.DeleteNamespaces(ctx)
	}
}, NodeTimeout(limits.Scaled(4*time.Minute)))
