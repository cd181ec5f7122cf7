// Package hexactf tests HexaCTF challenges against a real API server with simulated nodes, with
// the operator in this process.
//
// It needs KUBECONFIG; make test brings up the cluster and sets it.
package hexactf

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/hexactftest"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/limits"
)

var (
	k8s client.WithWatch
	// platform receives the messages about challenges.
	platform *hexactftest.Platform
)

func TestIntegration(t *testing.T) { apiserver.Run(t, "HexaCTF challenges") }

var _ = BeforeSuite(func(ctx context.Context) {
	k8s, _ = apiserver.Begin(ctx)
	var stop func()
	platform, stop = hexactftest.NewPlatform()
	DeferCleanup(stop)
	inprocess.Begin(map[string]string{"KAFKA_BROKERS": platform.Brokers, "KAFKA_SEND_TIMEOUT": "1s"})
})

// No spec may leave a challenge behind.
var _ = AfterSuite(func(ctx context.Context) {
	if k8s == nil {
		return
	}
	hexactftest.NoneLeft(ctx)
	inprocess.End()
	apiserver.DeleteNamespaces(ctx)
}, NodeTimeout(limits.Scaled(4*time.Minute)))
