// Package berg tests Challenges and their instances against a real API server with simulated
// nodes: real Deployments, real garbage collection and real deletion of namespaces, pods
// that only seem to run. The operator runs in this process.
//
// It needs KUBECONFIG; make test brings up the cluster and sets it.
package berg

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/bergctf/berg-operator/internal/berg"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
)

var (
	k8s        client.WithWatch
	restConfig *rest.Config
	// cfg are the family's settings in the operator that all specs share, process those of the
	// process.
	cfg     config.Berg
	process config.Process
)

func TestIntegration(t *testing.T) { apiserver.Run(t, "Challenges and their instances") }

var _ = BeforeSuite(func(ctx context.Context) {
	k8s, restConfig = apiserver.Begin(ctx)
	process, _ = inprocess.Load(inprocess.With(nil), berg.New(&cfg))
	bergtest.WatchAll()
	inprocess.Begin()
})

var _ = AfterEach(bergtest.NoViolations)

// Whatever the specs did, no instance and no namespace of one is left over.
var _ = AfterSuite(func(ctx context.Context) {
	if k8s == nil {
		return
	}
	bergtest.NoneLeft(ctx)
	inprocess.End()
	apiserver.DeleteNamespaces(ctx, manifests.NamespacePrefix)
}, NodeTimeout(4*time.Minute))

// settings are the family's settings as variables make them.
func settings(env map[string]string) config.Berg {
	GinkgoHelper()
	var c config.Berg
	inprocess.Load(env, berg.New(&c))
	return c
}

func parse(text string, into any) {
	GinkgoHelper()
	Expect(yaml.UnmarshalStrict([]byte(text), into)).To(Succeed())
}
