// Package api tests the platform API with real pods: it is installed as docs/platforms.md says, and called as CTFd and
// rCTF call it.
//
// It takes the cluster from KUBECONFIG and leaves nothing behind in it. The nodes must have the images of the API and of
// test/samples/images, and their addresses must be reachable from this machine. make e2e E2E=api provides all of that.
package api

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"

	"github.com/bergctf/berg-operator/test/lib/deployed"
	"github.com/bergctf/berg-operator/test/lib/limits"
)

func TestJourneys(t *testing.T) { deployed.Run(t, "The platform API on a real cluster") }

// world is the cluster under test. Specs do not change it.
var world *deployed.Cluster

var _ = BeforeSuite(func(ctx SpecContext) {
	world = deployed.Begin(ctx)
	install(ctx)
}, NodeTimeout(limits.Scaled(5*time.Minute)))
