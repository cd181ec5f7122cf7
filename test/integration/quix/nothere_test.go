package quix

import (
	"context"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/quixtest"
	"github.com/bergctf/berg-operator/test/lib/transport"
)

var _ = Describe("A 404 that names no object", func() {
	DescribeTable("delays neither the start nor the deletion of an Environment",
		func(ctx context.Context, answered func(id string, r *http.Request) bool) {
			inprocess.Pause()
			env := quixtest.Environment(ctx, quixtest.NewID(), func(env *quixv1.Environment) { env.GenerateName, env.Name = "", env.Spec.ID })
			id := env.Spec.ID // env is read again while the operator runs
			lost := &transport.NotFound{Times: 2, Match: func(r *http.Request) bool { return answered(id, r) }}
			stop := inprocess.RunAt(clock.RealClock{}, nil, lost.Wrap)
			DeferCleanup(stop)
			expect.Settles(ctx, env, quixv1.PhaseReady)
			expect.Deleted(ctx, env)
			err := k8s.Get(ctx, client.ObjectKey{Name: env.Spec.ID + "-qdep"}, &corev1.Namespace{})
			Expect(client.IgnoreNotFound(err)).To(Succeed())
			Expect(err).To(HaveOccurred(), "the namespace still exists")
			Expect(lost.Answered.Load()).To(Equal(int64(2)), "it was not tried again")
		},
		Entry("to a write of its status", func(id string, r *http.Request) bool {
			return r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/environments/"+id+"/status")
		}),
		Entry("to the deletion of its namespace", func(id string, r *http.Request) bool {
			return r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, "/namespaces/"+id+"-qdep")
		}),
		Entry("to the question whether its namespace is gone", func(id string, r *http.Request) bool {
			return r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/namespaces/"+id+"-qdep")
		}),
		Entry("to the last write of its deletion", func(id string, r *http.Request) bool {
			if r.Method != http.MethodPatch || !strings.HasSuffix(r.URL.Path, "/environments/"+id) {
				return false
			}
			return !strings.Contains(transport.Body(r), quixv1.Finalizer)
		}),
	)
})
