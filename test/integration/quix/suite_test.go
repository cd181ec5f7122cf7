// Package quix tests Environments against a real API server, with the operator in this
// process.
//
// It needs KUBECONFIG; make test brings up the cluster and sets it.
package quix

import (
	"context"
	"os"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/cmd/berg-operator/families"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/quixtest"
)

var (
	k8s        client.WithWatch
	restConfig *rest.Config
	// process are the settings of the operator that all specs share.
	process config.Process
)

func TestIntegration(t *testing.T) {
	if os.Getenv("KUBECONFIG") == "" {
		t.Skip("KUBECONFIG is not set: make test brings up a cluster and sets it")
	}
	RegisterFailHandler(Fail)
	apiserver.SetDefaults()
	RunSpecs(t, "Environments")
}

var _ = BeforeSuite(func(ctx context.Context) {
	apiserver.Connect()
	apiserver.Install(ctx)
	k8s, restConfig = apiserver.Client, apiserver.Config
	process, _ = inprocess.Load(inprocess.With(nil), families.All()...)
	inprocess.Begin()
})

// Whatever the specs did, no Environment is left over.
var _ = AfterSuite(func(ctx context.Context) {
	if k8s == nil {
		return
	}
	quixtest.NoneLeft(ctx)
	inprocess.End()
	apiserver.DeleteNamespaces(ctx)
}, NodeTimeout(4*time.Minute))
