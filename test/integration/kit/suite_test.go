// Package kit tries on a real API server what the kit promises of it and no family
// uses as yet. It runs no operator. It needs KUBECONFIG; make test brings up the cluster
// and sets it.
package kit

import (
	"context"
	"os"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
)

var (
	k8s    client.Client
	writer apply.Writer
	marks  = ownership.Marks{Domain: "kit.example.com", Owner: "owner", Found: map[string]string{"kit.example.com/managed-by": "kit"}}
)

func TestIntegration(t *testing.T) {
	if os.Getenv("KUBECONFIG") == "" {
		t.Skip("KUBECONFIG is not set: make test brings up a cluster and sets it")
	}
	RegisterFailHandler(Fail)
	apiserver.SetDefaults()
	RunSpecs(t, "The kit")
}

var _ = BeforeSuite(func(ctx context.Context) {
	apiserver.Connect()
	k8s = apiserver.Client
	writer = apply.Writer{Client: k8s, Live: k8s, Manager: "kit", Restraint: apply.NewRestraint(clock.RealClock{})}

	definition := apiserver.Object(gadgets)
	apiserver.InstallDefinition(ctx, definition)
	DeferCleanup(func(ctx context.Context) { Expect(client.IgnoreNotFound(k8s.Delete(ctx, definition))).To(Succeed()) })
})
