package quix

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/quixtest"
)

// The cache keeps few of them, so that they take no memory.
var _ = Describe("An environment with many finalizers of others", func() {
	It("gets one of the operator and loses it, and keeps all others", func(ctx context.Context) {
		others := apiserver.ManyFinalizers()
		env := quixtest.Environment(ctx, quixtest.NewID(), func(e *quixv1.Environment) { e.Finalizers = others })
		DeferCleanup(func(ctx context.Context) {
			apiserver.Change(ctx, env, func() { env.Finalizers = nil })
		})
		expect.Settles(ctx, env, quixv1.PhaseReady)
		Expect(env.Finalizers).To(ConsistOf(append([]string{quixv1.Finalizer}, others...)))
		Expect(k8s.Delete(ctx, env)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(env), env)).To(Succeed())
			g.Expect(env.Finalizers).To(Equal(others))
		}).WithContext(ctx).Should(Succeed())
	})
})
