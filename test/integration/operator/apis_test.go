package operator

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/installed"
	"github.com/bergctf/berg-operator/test/lib/quixtest"
	"github.com/bergctf/berg-operator/test/lib/transport"
)

var _ = Describe("An API that is not enabled", func() {
	DescribeTable("costs no request and needs no right, and the other works", func(ctx context.Context, enabled, absent string, never ...string) {
		inprocess.Pause()
		takeRightsAway(ctx, absent)
		var asked, refused atomic.Pointer[string]
		// Not Instead, which would start the shared one again before it has its rights back.
		stop := inprocess.Run(map[string]string{"POD_NAMESPACE": installed.Namespace, "ENABLED_APIS": enabled}, transport.Through(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			for _, part := range never {
				// Discovery asks for the list of an API; nothing asks for its objects.
				if strings.Contains(r.URL.Path, part) {
					asked.Store(&r.URL.Path)
				}
			}
			response, err := next.RoundTrip(r)
			if err == nil && response.StatusCode == http.StatusForbidden {
				refused.Store(ptr.To(r.Method + " " + r.URL.Path))
			}
			return response, err
		}))
		DeferCleanup(stop)
		if enabled == quixv1.GroupVersion.Group {
			quixtest.Ready(ctx)
		} else {
			ns := bergtest.Publish(ctx, "alone", bergtest.OneContainer)
			i := bergtest.Instance(ctx, ns, "alone")
			expect.Reaches(ctx, i, "Running")
			bergtest.Delete(ctx, i)
		}
		if path := asked.Load(); path != nil {
			Fail("it asked for " + *path)
		}
		if request := refused.Load(); request != nil {
			Fail("it may not " + *request)
		}
	},
		Entry("without Quix", bergv1.GroupVersion.Group, "quix", "/environments", "/rolebindings", "/clusterroles"),
		Entry("without Berg", quixv1.GroupVersion.Group, "berg", "/challenges", "/challengeinstances", "/pods", "/deployments", "/services", "/customresourcedefinitions"),
	)
})

// takeRightsAway takes the rights of a family from the operator until the spec ends, as in an
// installation without it.
func takeRightsAway(ctx context.Context, family string) {
	GinkgoHelper()
	name := "berg-operator-" + family
	everywhere := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}
	Expect(k8s.Get(ctx, client.ObjectKeyFromObject(everywhere), everywhere)).To(Succeed())
	own := &rbacv1.RoleBindingList{}
	Expect(k8s.List(ctx, own, client.InNamespace(installed.Namespace))).To(Succeed())
	bindings := []client.Object{everywhere}
	for _, binding := range own.Items {
		if binding.Name == name { // not every family has one
			bindings = append(bindings, &binding)
		}
	}
	resource := authorizationv1.ResourceAttributes{Verb: "list", Group: "quix.io", Resource: "environments"}
	if family == "berg" {
		resource = authorizationv1.ResourceAttributes{Verb: "list", Group: "berg.norelect.ch", Resource: "challenges"}
	}
	may := func(ctx context.Context) bool { return apiserver.May(ctx, apiserver.OperatorUser, resource) }
	for _, binding := range bindings {
		Expect(k8s.Delete(ctx, binding)).To(Succeed())
	}
	DeferCleanup(func(ctx context.Context) {
		for _, binding := range bindings {
			binding.SetResourceVersion("")
			binding.SetUID("")
			Expect(k8s.Create(ctx, binding)).To(Succeed())
		}
		Eventually(may).WithContext(ctx).Should(BeTrue())
	})
	Eventually(may).WithContext(ctx).Should(BeFalse())
}
