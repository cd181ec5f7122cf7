package bergtest

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/warm"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/installed"
)

// AllowPrepared gives the operator the rights of config/berg/warm until the spec or the suite ends.
func AllowPrepared(ctx context.Context) {
	GinkgoHelper()
	k8s := apiserver.Client
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

// PreparedFor lists the prepared instances of a Challenge.
func PreparedFor(ctx context.Context, c *bergv1.Challenge) []bergv1.ChallengeInstance {
	GinkgoHelper()
	return apiserver.List[bergv1.ChallengeInstanceList](ctx, client.InNamespace(installed.Namespace),
		client.MatchingLabels{bergv1.LabelPrepared: string(c.UID)}).Items
}
