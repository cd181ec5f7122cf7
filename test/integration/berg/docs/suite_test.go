// Package docs tests what the documentation shows: its YAML, and the programs of docs/platforms.
//
// It runs against a real API server with simulated nodes: real Deployments, real garbage collection and real
// deletion of namespaces, pods that only seem to run. The operator runs in this process. KUBECONFIG names the
// cluster; make test starts one and sets it.
package docs

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
)

var k8s client.WithWatch

func TestIntegration(t *testing.T) { apiserver.Run(t, "The documentation") }

var _ = bergtest.Suite(func() {
	k8s = apiserver.Client
})
