// Package life tests the life of instances: start, health, expiry, freeze and deletion.
//
// It runs against a real API server with simulated nodes: real Deployments, real garbage collection and real
// deletion of namespaces, pods that only seem to run. The operator runs in this process. KUBECONFIG names the
// cluster; make test starts one and sets it.
package life

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
)

var (
	k8s client.WithWatch
	// cfg are the family's settings in the operator that all specs share.
	cfg config.Berg
)

func TestIntegration(t *testing.T) { apiserver.Run(t, "The life of instances") }

var _ = bergtest.Suite(func() {
	k8s = apiserver.Client
	cfg = bergtest.Settings(inprocess.With(nil))
})
