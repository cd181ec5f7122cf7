// Package operator tests the operator as a program, independent of API groups: start and end,
// leader election, a sudden death after any write, rights, metrics, what it tells of flags,
// what upgrades wait for, pressure, and the examples of its bundle. It does so against a
// real API server with simulated nodes; some operators run as processes, some in this one.
//
// It needs KUBECONFIG; make test brings up the cluster and sets it.
package operator

import (
	"context"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/quixtest"
)

var (
	k8s        client.WithWatch
	restConfig *rest.Config
)

func TestIntegration(t *testing.T) { apiserver.Run(t, "The operator") }

var _ = AfterEach(bergtest.NoViolations)

var _ = inprocess.Suite{
	Before: func(ctx context.Context) map[string]string {
		k8s, restConfig = apiserver.Client, apiserver.Config
		bergtest.WatchAll()
		DeferCleanup(build.Remove)
		return nil
	},
	Gone: func(ctx context.Context) {
		bergtest.NoneLeft(ctx)
		quixtest.NoneLeft(ctx)
	},
	Prefixes: []string{manifests.NamespacePrefix},
}.Register()
