package life

import (
	"context"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/transport"
)

// An API server that does not know a kind, or a proxy before it, answers 404 as one
// that does not know an object does, without the name of any.
var _ = Describe("A 404 that names no object", func() {
	DescribeTable("holds up neither the start nor the deletion of an instance",
		func(ctx context.Context, answered func(owner string, r *http.Request) bool) {
			ns := bergtest.Publish(ctx, "here", bergtest.OneContainer)
			inprocess.Pause()
			i := bergtest.Instance(ctx, ns, "here", bergtest.NamedAfterOwner)
			id := i.Spec.OwnerID // i is read again while the operator runs
			lost := &transport.NotFound{Times: 2, Match: func(r *http.Request) bool { return answered(id, r) }}
			stop := inprocess.RunAt(clock.RealClock{}, nil, lost.Wrap)
			DeferCleanup(stop)
			expect.Reaches(ctx, i, bergv1.PhaseRunning)
			bergtest.Delete(ctx, i)
			Expect(lost.Answered.Load()).To(Equal(int64(2)), "it was not tried again")
		},
		Entry("to the first write of it", func(id string, r *http.Request) bool {
			return r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/challengeinstances/"+id)
		}),
		Entry("to a write of its status", func(id string, r *http.Request) bool {
			return r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/challengeinstances/"+id+"/status")
		}),
		Entry("to the creation of a Service", func(id string, r *http.Request) bool {
			return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/challenge-"+id+"/services")
		}),
		Entry("to the deletion of its namespace", func(id string, r *http.Request) bool {
			return r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, "/namespaces/challenge-"+id)
		}),
		Entry("to the question whether its namespace is gone", func(id string, r *http.Request) bool {
			return r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/namespaces/challenge-"+id)
		}),
		Entry("to the last write of its deletion", func(id string, r *http.Request) bool {
			if r.Method != http.MethodPatch || !strings.HasSuffix(r.URL.Path, "/challengeinstances/"+id) {
				return false
			}
			return !strings.Contains(transport.Body(r), bergv1.Finalizer) // it takes the only one off
		}),
	)

	It("to the last list of routes, whose API was removed, lets an instance be deleted", func(ctx context.Context) {
		i := bergtest.StartRunning(ctx, "removed", bergtest.OneContainer)
		inprocess.Pause()
		// The cache still shows a route when the namespace is gone.
		vanish(ctx, i)
		where := i.Status.Namespace // i is read again while the operator runs
		lost := &transport.NotFound{Times: 1000, Match: func(r *http.Request) bool {
			return r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/"+where+"/httproutes")
		}}
		Expect(k8s.Delete(ctx, i)).To(Succeed())
		stop := inprocess.RunAt(clock.RealClock{}, nil, lost.Wrap)
		DeferCleanup(stop)
		bergtest.Gone(ctx, i)
		Expect(lost.Answered.Load()).To(BeNumerically(">", 0), "no request was answered so")
		Expect(k8s.DeleteAllOf(ctx, &gatewayv1.HTTPRoute{}, client.InNamespace(i.Status.Namespace))).To(Succeed())
	})
})
