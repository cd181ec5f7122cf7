// Package quix tests Environments against a real API server, with the operator in this
// process.
//
// It needs KUBECONFIG; make test brings up the cluster and sets it.
package quix

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/cmd/berg-operator/families"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/limits"
	"github.com/bergctf/berg-operator/test/lib/quixtest"
)

var (
	k8s        client.WithWatch
	restConfig *rest.Config
	// process are the settings of the operator that all specs share.
	process config.Process
)

func TestIntegration(t *testing.T) { apiserver.Run(t, "Environments") }

var _ = BeforeSuite(func(ctx context.Context) {
	k8s, restConfig = apiserver.Begin(ctx)
	process, _ = inprocess.Load(inprocess.With(nil), families.All()...)
	inprocess.Begin()
})

// No spec may leave an Environment behind.
var _ = AfterSuite(func(ctx context.Context) {
	if k8s == nil {
		return
	}
	quixtest.NoneLeft(ctx)
	inprocess.End()
	apiserver.DeleteNamespaces(ctx)
}, NodeTimeout(limits.Scaled(4*time.Minute)))
