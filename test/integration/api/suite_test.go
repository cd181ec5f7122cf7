// Package api tests the platform API against a real API server with simulated nodes. Operator and API run in this
// process; the clients are doubles of those that platforms have. KUBECONFIG names the cluster; make test starts one and
// sets it.
package api

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
)

var k8s client.WithWatch

func TestIntegration(t *testing.T) { apiserver.Run(t, "The platform API") }

var _ = bergtest.Suite(func() { k8s = apiserver.Client })
