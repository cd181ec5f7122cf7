package quix

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/quixtest"
)

var _ = Describe("The message of a long problem is bounded:", func() {
	It("the error of the API server", func(ctx context.Context) {
		env := quixtest.Environment(ctx, quixtest.NewID(), func(env *quixv1.Environment) {
			env.Spec.Labels = map[string]string{"quix.io/a": strings.Repeat("ä", 40000)}
		})
		expect.Settles(ctx, env, quixv1.PhaseFailed)
		expect.Shows(ctx, env, quixv1.ConditionNamespaceReady, metav1.ConditionFalse, quixv1.ReasonNamespaceCreationFailed)
		expect.Readable(env.Status.Conditions)
		for _, text := range []string{env.Status.Message, env.Status.NamespaceStatus.Message} {
			Expect(text).To(And(ContainSubstring("metadata.labels"), ContainSubstring("must be no more than 63")))
			Expect(len(text)).To(BeNumerically("<=", expect.MaxMessage))
			Expect(utf8.ValidString(text)).To(BeTrue())
		}
		Eventually(environmentEvents).WithContext(ctx).WithArguments(env).Should(ContainElement("Warning/" + quixv1.ReasonNamespaceCreationFailed))

		apiserver.Change(ctx, env, func() { env.Spec.Labels = nil })
		expect.Settles(ctx, env, quixv1.PhaseReady)
	})

	It("a namespace with many finalizers", func(ctx context.Context) {
		env := quixtest.Ready(ctx)
		var finalizers []string
		for n := range 200 {
			finalizers = append(finalizers, fmt.Sprintf("%s-%d.example.com/%s", strings.Repeat("hold-", 20), n, strings.Repeat("x", 60)))
		}
		ns := environmentNamespace(ctx, env)
		set := func(ctx context.Context, to []string) {
			now := ns.DeepCopy()
			now.Finalizers = to
			Expect(client.IgnoreNotFound(k8s.Patch(ctx, now, client.MergeFrom(ns)))).To(Succeed())
			ns = now
		}
		set(ctx, finalizers)
		DeferCleanup(func(ctx context.Context) { set(ctx, nil) })
		Expect(k8s.Delete(ctx, env)).To(Succeed())
		expect.Shows(ctx, env, quixv1.ConditionNamespaceReady, metav1.ConditionFalse, quixv1.ReasonDeletionBlocked)
		expect.Readable(env.Status.Conditions)
		Expect(env.Status.Message).To(And(ContainSubstring(finalizers[0]), ContainSubstring("195 more")))
		Expect(len(env.Status.Message)).To(BeNumerically("<=", expect.MaxMessage))
		Eventually(environmentEvents).WithContext(ctx).WithArguments(env).Should(ContainElement("Warning/" + quixv1.ReasonDeletionBlocked))
		set(ctx, nil)
		expect.Gone(ctx, env)
	})
})
