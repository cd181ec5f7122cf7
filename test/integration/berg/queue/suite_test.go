// Package queue tests which instances may start and when: limits, owners, leftovers of former instances; and that instances at rest cost no request.
//
// It runs against a real API server with simulated nodes: real Deployments, real garbage collection and real
// deletion of namespaces, pods that only seem to run. The operator runs in this process. KUBECONFIG names the
// cluster; make test starts one and sets it.
package queue

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
)

var k8s client.WithWatch

func TestIntegration(t *testing.T) { apiserver.Run(t, "The queue of instances") }

var _ = bergtest.Suite(func() {
	k8s = apiserver.Client
})
