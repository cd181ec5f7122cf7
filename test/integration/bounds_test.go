package integration

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
)

// longestMessage is what a condition says at most; the schema's own limit is 32,768.
const longestMessage = 2048

var _ = Describe("What is wrong is told in a few words, however long it is:", func() {
	DescribeTable("of a Challenge, with the field and what to do",
		func(ctx context.Context, spec string, says ...string) {
			ns := newNamespace(ctx)
			challenge(ctx, ns, "long", spec)
			i := instance(ctx, ns, "long")
			shows(ctx, i, bergv1.ConditionChallengeFound, metav1.ConditionFalse, bergv1.ReasonInvalidChallenge)
			Expect(i.Status.Phase).To(Equal(bergv1.PhaseFailed))
			for _, text := range says {
				Expect(conditions(i)).To(ContainSubstring(text))
			}
			readable(i.Status.Conditions)
			eventually(ctx, i, corev1.EventTypeWarning, bergv1.ReasonInvalidChallenge)
		},
		Entry("the name of a variable", fmt.Sprintf(`containers: [{hostname: a, image: i, environment: {? "%s=" : 1}}]`, strings.Repeat("x", 17000)),
			"spec.containers[0].environment[xxx", "must consist of"),
		Entry("such a name in an alphabet of its own", fmt.Sprintf(`containers: [{hostname: a, image: i, environment: {? "%s" : 1}}]`, strings.Repeat("ä", 17000)),
			"spec.containers[0].environment[ä", "must consist of"),
		Entry("many such names", `containers: [{hostname: a, image: i, environment: {`+manyLongVariables(12)+`}}]`,
			"spec.containers[0].environment[", "must consist of", "more"),
		Entry("every image", `containers: [`+manyLongImages(16)+`]`, "spec.containers[0].image", "without spaces", "more"),
	)

	It("of an Environment, what the API server says", func(ctx context.Context) {
		env := newEnvironment(ctx, newID(), func(env *quixv1.Environment) {
			env.Spec.Labels = map[string]string{"quix.io/a": strings.Repeat("ä", 40000)}
		})
		environmentReaches(ctx, env, quixv1.PhaseFailed)
		environmentShows(ctx, env, quixv1.ConditionNamespaceReady, metav1.ConditionFalse, quixv1.ReasonNamespaceCreationFailed)
		readable(env.Status.Conditions)
		for _, text := range []string{env.Status.Message, env.Status.NamespaceStatus.Message} {
			Expect(text).To(And(ContainSubstring("metadata.labels"), ContainSubstring("must be no more than 63")))
			Expect(len(text)).To(BeNumerically("<=", longestMessage))
			Expect(utf8.ValidString(text)).To(BeTrue())
		}
		Eventually(environmentEvents).WithContext(ctx).WithArguments(env).Should(ContainElement("Warning/" + quixv1.ReasonNamespaceCreationFailed))

		environmentUpdated(ctx, env, func() { env.Spec.Labels = nil })
		environmentReaches(ctx, env, quixv1.PhaseReady)
	})

	It("of a namespace that many finalizers hold", func(ctx context.Context) {
		env := newEnvironment(ctx, newID())
		environmentReaches(ctx, env, quixv1.PhaseReady)
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
		environmentShows(ctx, env, quixv1.ConditionNamespaceReady, metav1.ConditionFalse, quixv1.ReasonDeletionBlocked)
		readable(env.Status.Conditions)
		Expect(env.Status.Message).To(And(ContainSubstring(finalizers[0]), ContainSubstring("195 more")))
		Expect(len(env.Status.Message)).To(BeNumerically("<=", longestMessage))
		Eventually(environmentEvents).WithContext(ctx).WithArguments(env).Should(ContainElement("Warning/" + quixv1.ReasonDeletionBlocked))
		set(ctx, nil)
		environmentGone(ctx, env)
	})
})

// readable checks that no message is longer than a person would read, or cut in the middle
// of a character.
func readable(all []metav1.Condition) {
	GinkgoHelper()
	for _, c := range all {
		Expect(len(c.Message)).To(BeNumerically("<=", longestMessage), c.Type)
		Expect(utf8.ValidString(c.Message)).To(BeTrue(), c.Type)
		Expect(c.Message).NotTo(ContainSubstring("\uFFFD"), c.Type)
	}
}

func manyLongVariables(n int) string {
	all := make([]string, 0, n)
	for i := range n {
		all = append(all, fmt.Sprintf(`? "%d%s=" : 1`, i, strings.Repeat("x", 5000)))
	}
	return strings.Join(all, ", ")
}

func manyLongImages(n int) string {
	all := make([]string, 0, n)
	for i := range n {
		all = append(all, fmt.Sprintf(`{hostname: h%d, image: " %s"}`, i, strings.Repeat("i", 1023)))
	}
	return strings.Join(all, ", ")
}
