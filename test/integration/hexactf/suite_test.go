// Package hexactf tests HexaCTF challenges against a real API server with simulated nodes, with
// the operator in this process.
//
// It needs KUBECONFIG; make test brings up the cluster and sets it.
package hexactf

import (
	"context"
	"os"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/hexactftest"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
)

var (
	k8s client.WithWatch
	// platform is told the states of challenges.
	platform *hexactftest.Platform
)

func TestIntegration(t *testing.T) {
	if os.Getenv("KUBECONFIG") == "" {
		t.Skip("KUBECONFIG is not set: make test brings up a cluster and sets it")
	}
	RegisterFailHandler(Fail)
	apiserver.SetDefaults()
	RunSpecs(t, "HexaCTF challenges")
}

var _ = BeforeSuite(func(ctx context.Context) {
	apiserver.Connect()
	apiserver.Install(ctx)
	k8s = apiserver.Client
	var stop func()
	platform, stop = hexactftest.NewPlatform()
	DeferCleanup(stop)
	inprocess.Begin(map[string]string{"KAFKA_BROKERS": platform.Brokers, "KAFKA_SEND_TIMEOUT": "1s"})
})

// Whatever the specs did, no challenge is left over.
var _ = AfterSuite(func(ctx context.Context) {
	if k8s == nil {
		return
	}
	hexactftest.NoneLeft(ctx)
	inprocess.End()
	apiserver.DeleteNamespaces(ctx)
}, NodeTimeout(4*time.Minute))
