// Package kibaship tests KibaShip projects, applications and their admission against a real API
// server, with the operator in this process.
//
// It needs KUBECONFIG; make test brings up the cluster and sets it.
package kibaship

import (
	"context"
	"testing"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/kibashiptest"
)

var (
	k8s        client.WithWatch
	restConfig *rest.Config
)

func TestIntegration(t *testing.T) { apiserver.Run(t, "KibaShip projects") }

var _ = inprocess.Suite{
	Before: func(ctx context.Context) map[string]string {
		k8s, restConfig = apiserver.Client, apiserver.Config
		kibashiptest.Admin(ctx)
		return nil
	},
	Gone:     kibashiptest.NoneLeft,
	Prefixes: []string{"project-it-"},
}.Register()
