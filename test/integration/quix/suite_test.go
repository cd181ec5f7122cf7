// Package quix tests Environments against a real API server, with the operator in this
// process.
//
// It needs KUBECONFIG; make test brings up the cluster and sets it.
package quix

import (
	"context"
	"testing"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/quixtest"
)

var (
	k8s        client.WithWatch
	restConfig *rest.Config
)

func TestIntegration(t *testing.T) { apiserver.Run(t, "Environments") }

var _ = inprocess.Suite{
	Before: func(ctx context.Context) map[string]string {
		k8s, restConfig = apiserver.Client, apiserver.Config
		return nil
	},
	Gone: quixtest.NoneLeft,
}.Register()
