// Package apply tests the objects that an instance consists of: what a Challenge makes of them, changes by other
// clients, edits, optional APIs, and input that must be refused.
//
// It runs against a real API server with simulated nodes: real Deployments, real garbage collection and real
// deletion of namespaces, pods that only seem to run. The operator runs in this process. KUBECONFIG names the
// cluster; make test starts one and sets it.
package apply

import (
	"testing"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
)

var (
	k8s client.WithWatch
	// cfg are the family's settings in the operator that all specs share.
	cfg        config.Berg
	restConfig *rest.Config
)

func TestIntegration(t *testing.T) { apiserver.Run(t, "The objects of instances") }

var _ = bergtest.Suite(func() {
	k8s = apiserver.Client
	cfg = bergtest.Settings(inprocess.With(nil))
	restConfig = apiserver.Config
})
