package quix

import (
	"context"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/quixtest"
)

var _ = Describe("A finalizer that is removed by hand", func() {
	It("is restored on an Environment", func(ctx context.Context) {
		env := quixtest.Environment(ctx, "e"+uuid.NewString()[:8])
		expect.Settles(ctx, env, quixv1.PhaseReady)
		apiserver.RemoveFinalizers(ctx, env)
		expect.Finalizer(ctx, env, quixv1.Finalizer)
	})
})

// An Environment is cluster-scoped, so it owns its namespace for the garbage collector too.
var _ = Describe("The namespace of an Environment whose finalizer was removed by hand", func() {
	It("is deleted with it", func(ctx context.Context) {
		env := quixtest.Environment(ctx, "e"+uuid.NewString()[:8])
		expect.Settles(ctx, env, quixv1.PhaseReady)
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: env.Status.NamespaceStatus.ResourceName}}
		resume := inprocess.Pause()
		apiserver.RemoveFinalizers(ctx, env)
		Expect(k8s.Delete(ctx, env)).To(Succeed())
		resume()
		Eventually(func() error { return k8s.Get(ctx, client.ObjectKeyFromObject(ns), ns) }).Should(MatchError(apierrors.IsNotFound, "IsNotFound"))
	})
})
