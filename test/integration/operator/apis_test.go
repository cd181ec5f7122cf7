package operator

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/clock"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/installed"
	"github.com/bergctf/berg-operator/test/lib/quixtest"
	"github.com/bergctf/berg-operator/test/lib/transport"
)

var _ = Describe("An API that is not enabled", func() {
	DescribeTable("costs no request, and the other works", func(ctx context.Context, enabled string, never ...string) {
		inprocess.Pause()
		var asked atomic.Pointer[string]
		inprocess.Instead(clock.RealClock{}, map[string]string{"POD_NAMESPACE": installed.Namespace, "ENABLED_APIS": enabled}, transport.Showing(func(r *http.Request) {
			for _, part := range never {
				// Discovery asks for the list of an API, nobody for its objects.
				if strings.Contains(r.URL.Path, part) {
					asked.Store(&r.URL.Path)
				}
			}
		}))
		if enabled == quixv1.GroupVersion.Group {
			env := quixtest.Environment(ctx, quixtest.NewID())
			expect.Settles(ctx, env, quixv1.PhaseReady)
		} else {
			ns := bergtest.Namespace(ctx)
			bergtest.Challenge(ctx, ns, "alone", bergtest.OneContainer)
			i := bergtest.Instance(ctx, ns, "alone")
			expect.Reaches(ctx, i, "Running")
			Expect(k8s.Delete(ctx, i)).To(Succeed())
			bergtest.Gone(ctx, i)
		}
		if path := asked.Load(); path != nil {
			Fail("it asked for " + *path)
		}
	},
		Entry("without Quix", bergv1.GroupVersion.Group, "/environments", "/rolebindings", "/clusterroles"),
		Entry("without Berg", quixv1.GroupVersion.Group, "/challenges", "/challengeinstances", "/pods", "/deployments", "/services", "/customresourcedefinitions"),
	)
})
