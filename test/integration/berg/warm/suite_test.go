// Package warm tests prepared instances: they have neither a player nor a flag, one player alone gets one, and no failure of the
// operator loses or doubles any.
//
// It runs against a real API server with simulated nodes. The operator runs in this process, with the rights of config/berg/warm.
package warm

import (
	"context"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/berg/warm"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/installed"
)

var k8s client.WithWatch

func TestIntegration(t *testing.T) { apiserver.Run(t, "Prepared instances") }

var _ = inprocess.Suite{
	Before: func(ctx context.Context) map[string]string {
		k8s = apiserver.Client
		bergtest.WatchAll()
		allow(ctx)
		return map[string]string{"CHALLENGE_WARM_MAX_INSTANCES": "10"}
	},
	Gone:     bergtest.NoneLeft,
	Prefixes: []string{manifests.NamespacePrefix},
}.Register()

var _ = AfterEach(bergtest.NoViolations)

// allow gives the operator the rights of config/berg/warm until the suite ends.
func allow(ctx context.Context) {
	GinkgoHelper()
	Expect(installed.Folder(ctx, k8s, "config/berg/warm", "integration")).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		Expect(k8s.Delete(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "berg-operator-berg-warm"}})).To(Succeed())
		Expect(k8s.Delete(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: installed.Namespace, Name: "berg-operator-berg-warm"}})).To(Succeed())
	})
	for _, right := range []authorizationv1.ResourceAttributes{ // the API server goes by them a moment later
		{Namespace: installed.Namespace, Group: bergv1.GroupVersion.Group, Resource: "challengeinstances", Verb: "create"},
		{Group: rbacv1.GroupName, Resource: "clusterroles", Name: warm.Pods.Role, Verb: "bind"},
		{Group: rbacv1.GroupName, Resource: "rolebindings", Verb: "create"},
	} {
		Eventually(func() bool { return apiserver.May(ctx, apiserver.OperatorUser, right) }).Should(BeTrue())
	}
}
