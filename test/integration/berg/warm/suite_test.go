// Package warm tests prepared instances: they have neither a player nor a flag, one player alone gets one, and no failure of the
// operator loses or doubles any.
//
// It runs against a real API server with simulated nodes. The operator runs in this process, with the rights of config/berg/warm.
package warm

import (
	"context"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
)

var k8s client.WithWatch

func TestIntegration(t *testing.T) { apiserver.Run(t, "Prepared instances") }

var _ = inprocess.Suite{
	Before: func(ctx context.Context) map[string]string {
		k8s = apiserver.Client
		bergtest.WatchAll()
		bergtest.AllowPrepared(ctx)
		return map[string]string{"CHALLENGE_WARM_MAX_INSTANCES": "10"}
	},
	Gone:     bergtest.NoneLeft,
	Prefixes: []string{manifests.NamespacePrefix},
}.Register()

var _ = AfterEach(bergtest.NoViolations)
