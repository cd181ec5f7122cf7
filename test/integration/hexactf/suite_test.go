// Package hexactf tests HexaCTF challenges against a real API server with simulated nodes, with
// the operator in this process.
//
// It needs KUBECONFIG; make test brings up the cluster and sets it.
package hexactf

import (
	"context"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/hexactftest"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
)

var (
	k8s client.WithWatch
	// platform receives the messages about challenges.
	platform *hexactftest.Platform
)

func TestIntegration(t *testing.T) { apiserver.Run(t, "HexaCTF challenges") }

var _ = inprocess.Suite{
	Before: func(ctx context.Context) map[string]string {
		k8s = apiserver.Client
		var stop func()
		platform, stop = hexactftest.NewPlatform()
		DeferCleanup(stop)
		return map[string]string{"KAFKA_BROKERS": platform.Brokers, "KAFKA_SEND_TIMEOUT": "1s"}
	},
	Gone: hexactftest.NoneLeft,
}.Register()
