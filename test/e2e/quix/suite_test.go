// Package quix tests environments on a cluster with real pods and a deployed operator, from the point of view of the
// platform and an administrator.
//
// It takes the cluster from KUBECONFIG and leaves nothing behind in it. The nodes must be able to pull the images of
// test/samples/images, and their addresses must be reachable from this machine. make e2e provides all of that.
package quix

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"

	"github.com/bergctf/berg-operator/test/lib/deployed"
	"github.com/bergctf/berg-operator/test/lib/limits"
)

func TestJourneys(t *testing.T) { deployed.Run(t, "Environments on a real cluster") }

// world is the cluster under test. Specs do not change it.
var world *deployed.Cluster

var _ = BeforeSuite(func(ctx SpecContext) { world = deployed.Begin(ctx) }, NodeTimeout(limits.Scaled(time.Minute)))
