// Package olm installs, configures, upgrades and removes the operator as an
// administrator does who has the Operator Lifecycle Manager, and looks whether
// players notice.
//
// It takes the cluster from KUBECONFIG: one with OLM, without the operator. The
// image archives of hack/test-releases must be loaded, and their version numbers
// be in RELEASES. `make e2e-olm` provides all of that.
package olm

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/format"

	operatorsv1 "github.com/operator-framework/api/pkg/operators/v1"
	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	operatorsv2 "github.com/operator-framework/api/pkg/operators/v2"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/gatewaytest"
	"github.com/bergctf/berg-operator/test/lib/limits"
)

const (
	// settled is how long OLM must call an installation a success: it takes that
	// back and gives it again while it notices its own changes.
	settled = 10 * time.Second

	pollInterval = 200 * time.Millisecond
)

var (
	// installLimit covers a catalog that starts, a bundle that is unpacked, and an
	// operator that starts, on two busy cores. OLM comes to it in steps of its own.
	installLimit = limits.Scaled(5 * time.Minute)
	// instanceLimit covers the start or the end of an instance, also while one
	// operator hands over to another.
	instanceLimit = limits.Scaled(2 * time.Minute)
)

func TestLifecycle(t *testing.T) {
	// A line on standard error instead of a suite of failures that all say it.
	for _, name := range []string{"KUBECONFIG", "RELEASES"} {
		if os.Getenv(name) == "" {
			t.Fatalf("%s is not set: run `make e2e-olm`", name)
		}
	}
	format.MaxLength = 2000
	RegisterFailHandler(Fail)
	SetDefaultEventuallyPollingInterval(pollInterval)
	SetDefaultConsistentlyPollingInterval(pollInterval)
	RunSpecs(t, "The operator under the Operator Lifecycle Manager")
}

// cluster is the cluster under test.
type cluster struct {
	client.WithWatch
}

var (
	world *cluster
	// first, second and head are the versions that are installed, in this order.
	// The catalog also has one between the last two, which cannot be installed.
	first, second, head string
)

var _ = BeforeSuite(func(ctx SpecContext) {
	releases := strings.Fields(os.Getenv("RELEASES"))
	Expect(releases).To(HaveLen(3), "RELEASES: want three versions")
	first, second, head = releases[0], releases[1], releases[2]
	apiserver.Connect(apiextensionsv1.AddToScheme, operatorsv1.AddToScheme, operatorsv1alpha1.AddToScheme, operatorsv2.AddToScheme)
	world = &cluster{WithWatch: apiserver.Client}
	// Connect makes it, and it is not left behind by the operator.
	gateway := resource("gateway.networking.k8s.io/v1", "Gateway", gatewaytest.Namespace, gatewaytest.Name, nil)
	expect.Until(ctx, instanceLimit, func(ctx context.Context) error { return world.Get(ctx, client.ObjectKeyFromObject(gateway), gateway) })
}, NodeTimeout(limits.Scaled(time.Minute)))
