package integration

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
)

// An API server that does not know a kind, or whatever stands before it, answers 404 as one
// that does not know an object does, without the name of any.
var _ = Describe("A 404 that names no object", Serial, func() {
	DescribeTable("holds up neither the start nor the end of an instance",
		func(ctx context.Context, answered func(owner string, r *http.Request) bool) {
			ns := newNamespace(ctx)
			challenge(ctx, ns, "here", oneContainer)
			pause()
			i := instance(ctx, ns, "here", namedAfterOwner)
			lost := &notHere{times: 2, match: func(r *http.Request) bool { return answered(i.Spec.OwnerID, r) }}
			stop := startAt(cfg, clock.RealClock{}, lost.wrap)
			DeferCleanup(stop)
			reaches(ctx, i, bergv1.PhaseRunning)
			Expect(k8s.Delete(ctx, i)).To(Succeed())
			gone(ctx, i)
			Expect(lost.answered.Load()).To(Equal(int64(2)), "it was not tried again")
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
		Entry("to the last write of its end", func(id string, r *http.Request) bool {
			if r.Method != http.MethodPatch || !strings.HasSuffix(r.URL.Path, "/challengeinstances/"+id) {
				return false
			}
			return !strings.Contains(bodyOf(r), bergv1.Finalizer) // it takes the only one off
		}),
	)

	DescribeTable("holds up neither the start nor the end of an Environment",
		func(ctx context.Context, answered func(id string, r *http.Request) bool) {
			pause()
			env := newEnvironment(ctx, newID(), func(env *quixv1.Environment) { env.GenerateName, env.Name = "", env.Spec.ID })
			lost := &notHere{times: 2, match: func(r *http.Request) bool { return answered(env.Spec.ID, r) }}
			stop := startAt(cfg, clock.RealClock{}, lost.wrap)
			DeferCleanup(stop)
			environmentReaches(ctx, env, quixv1.PhaseReady)
			Expect(k8s.Delete(ctx, env)).To(Succeed())
			environmentGone(ctx, env)
			err := k8s.Get(ctx, client.ObjectKey{Name: env.Spec.ID + "-qdep"}, &corev1.Namespace{})
			Expect(client.IgnoreNotFound(err)).To(Succeed())
			Expect(err).To(HaveOccurred(), "the namespace outlives it")
			Expect(lost.answered.Load()).To(Equal(int64(2)), "it was not tried again")
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
		Entry("to the last write of its end", func(id string, r *http.Request) bool {
			if r.Method != http.MethodPatch || !strings.HasSuffix(r.URL.Path, "/environments/"+id) {
				return false
			}
			return !strings.Contains(bodyOf(r), quixv1.Finalizer)
		}),
	)

	It("to the last look for routes, whose API was removed meanwhile, lets an instance end", func(ctx context.Context) {
		ns := newNamespace(ctx)
		challenge(ctx, ns, "removed", oneContainer)
		i := instance(ctx, ns, "removed")
		reaches(ctx, i, bergv1.PhaseRunning)
		pause()
		// The cache still shows a route when the namespace is gone.
		vanish(ctx, i)
		lost := &notHere{times: 1000, match: func(r *http.Request) bool {
			return r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/"+i.Status.Namespace+"/httproutes")
		}}
		Expect(k8s.Delete(ctx, i)).To(Succeed())
		stop := startAt(cfg, clock.RealClock{}, lost.wrap)
		DeferCleanup(stop)
		gone(ctx, i)
		Expect(lost.answered.Load()).To(BeNumerically(">", 0), "nobody looked")
		Expect(k8s.DeleteAllOf(ctx, &gatewayv1.HTTPRoute{}, client.InNamespace(i.Status.Namespace))).To(Succeed())
	})
})

// notHere answers requests as something that does not know what is asked of it: the first
// so many that match.
type notHere struct {
	match    func(*http.Request) bool
	times    int64
	answered atomic.Int64
}

func (n *notHere) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if !n.match(r) || n.answered.Load() >= n.times {
			return next.RoundTrip(r)
		}
		n.answered.Add(1)
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return &http.Response{
			StatusCode: http.StatusNotFound, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
			Header: http.Header{"Content-Type": {"text/plain; charset=utf-8"}}, Body: io.NopCloser(strings.NewReader("404 page not found\n")),
		}, nil
	})
}

// bodyOf reads what a request sends, and puts it back.
func bodyOf(r *http.Request) string {
	if r.Body == nil {
		return ""
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return ""
	}
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	return string(body)
}
