// Package operator plays the journeys of the operator on a cluster with real pods and a deployed
// operator, as a platform, a player and an administrator would see them.
//
// It takes the cluster from KUBECONFIG and leaves nothing behind in it. The images of
// test/samples/images must be there to pull, and the nodes' addresses must be reachable from
// here. make e2e provides all of that.
package operator

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"

	"github.com/bergctf/berg-operator/test/lib/deployed"
	"github.com/bergctf/berg-operator/test/lib/limits"
)

func TestJourneys(t *testing.T) { deployed.Run(t, "The operator as deployed") }

// world is the cluster under test. Specs do not change it.
var world *deployed.Cluster

var _ = BeforeSuite(func(ctx SpecContext) { world = deployed.Begin(ctx) }, NodeTimeout(limits.Scaled(time.Minute)))
