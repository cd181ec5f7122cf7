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
	"errors"
	"fmt"
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
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/cmd/berg-operator/families"
	"github.com/bergctf/berg-operator/internal/operator"
)

const (
	// installLimit covers a catalog that starts, a bundle that is unpacked, and an
	// operator that starts, on two busy cores. OLM comes to it in steps of its own.
	installLimit = 5 * time.Minute
	// instanceLimit covers the start or the end of an instance, also while one
	// operator hands over to another.
	instanceLimit = 2 * time.Minute
	// settled is how long OLM must call an installation a success: it takes that
	// back and gives it again while it notices its own changes.
	settled = 10 * time.Second

	pollInterval = 200 * time.Millisecond
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

	// metadata and discovery see also what the scheme does not know.
	metadata  metadata.Interface
	discovery discovery.DiscoveryInterface
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
	var err error
	world, err = connect()
	Expect(err).NotTo(HaveOccurred())
}, NodeTimeout(time.Minute))

func connect() (*cluster, error) {
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read KUBECONFIG: %w", err)
	}
	// A client-side limit would show up as slowness of the operator.
	config.QPS = -1
	scheme, err := operator.NewScheme(families.All()...)
	if err != nil {
		return nil, err
	}
	err = errors.Join(clientgoscheme.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme),
		operatorsv1.AddToScheme(scheme), operatorsv1alpha1.AddToScheme(scheme), operatorsv2.AddToScheme(scheme))
	if err != nil {
		return nil, err
	}
	c := &cluster{}
	if c.WithWatch, err = client.NewWithWatch(config, client.Options{Scheme: scheme}); err != nil {
		return nil, fmt.Errorf("reach the cluster of KUBECONFIG: %w", err)
	}
	if c.metadata, err = metadata.NewForConfig(config); err != nil {
		return nil, err
	}
	c.discovery, err = discovery.NewDiscoveryClientForConfig(config)
	return c, err
}

// until waits for a condition on the cluster that is asked for again and again.
// look returns why it does not hold yet.
func until(ctx context.Context, limit time.Duration, look func(context.Context) error) {
	GinkgoHelper()
	Eventually(ctx, look).WithTimeout(limit).Should(Succeed())
}
