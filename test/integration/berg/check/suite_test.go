// Package check tests ChallengeChecks, records of instances and images that are pulled ahead.
//
// It runs against a real API server with simulated nodes: real Deployments, real garbage collection and real
// deletion of namespaces, pods that only seem to run. The operator runs in this process. KUBECONFIG names the
// cluster; make test starts one and sets it.
package check

import (
	"testing"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
)

var (
	k8s        client.WithWatch
	restConfig *rest.Config
)

func TestIntegration(t *testing.T) { apiserver.Run(t, "Checks, records and images") }

var _ = bergtest.Suite(func() {
	k8s = apiserver.Client
	restConfig = apiserver.Config
})
