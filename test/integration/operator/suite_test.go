// Package operator tests the operator as a program, whatever it looks after: start and end,
// leader election, a sudden death after any write, rights, metrics, what it tells of flags,
// what upgrades wait for, pressure, and the examples of its bundle. It does so against a
// real API server with simulated nodes; some operators run as processes, some in this one.
//
// It needs KUBECONFIG; make test brings up the cluster and sets it.
package operator

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/limits"
	"github.com/bergctf/berg-operator/test/lib/quixtest"
)

var (
	k8s        client.WithWatch
	restConfig *rest.Config
)

func TestIntegration(t *testing.T) { apiserver.Run(t, "The operator") }

var _ = BeforeSuite(func(ctx context.Context) {
	k8s, restConfig = apiserver.Begin(ctx)
	bergtest.WatchAll()
	inprocess.Begin()
})

var _ = AfterEach(bergtest.NoViolations)

// Whatever the specs did, no instance, no Environment and no namespace of an instance is
// left over.
var _ = AfterSuite(func(ctx context.Context) {
	Expect(build.Remove()).To(Succeed())
	if k8s == nil {
		return
	}
	bergtest.NoneLeft(ctx)
	quixtest.NoneLeft(ctx)
	inprocess.End()
	apiserver.DeleteNamespaces(ctx, manifests.NamespacePrefix)
}, NodeTimeout(limits.Scaled(4*time.Minute)))
