package quix

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/quixtest"
)

// Before a maintenance, administrators freeze resources: an admission policy refuses the operator's writes of the
// Environments themselves.
var _ = Describe("A freeze of Environments", func() {
	const updates, statuses = "environments", "environments/status"

	It("of the status keeps no Environment whose namespace is gone, and is reported by an event", func(ctx context.Context) {
		env := quixtest.Ready(ctx)
		freeze(ctx, env.Name, statuses)
		expect.Deleted(ctx, env)
		Expect(apierrors.IsNotFound(k8s.Get(ctx, client.ObjectKey{Name: env.Spec.ID + "-qdep"}, &corev1.Namespace{}))).To(BeTrue(), "its namespace exists")
		expect.Event(ctx, env, corev1.EventTypeWarning, quixv1.ReasonRefused)
	})

	It("of the resource is reported by an Environment of which only the finalizer is left", func(ctx context.Context) {
		env := quixtest.Ready(ctx)
		lift := freeze(ctx, env.Name, updates)
		Expect(k8s.Delete(ctx, env)).To(Succeed())
		expect.Event(ctx, env, corev1.EventTypeWarning, quixv1.ReasonRefused)
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(env), env)).To(Succeed())
		Expect(env.Status.Phase).To(Equal(quixv1.PhaseDeleting))
		lift()
		expect.Gone(ctx, env)
	})

	DescribeTable("is reported by a new Environment, which becomes Ready when the freeze is lifted",
		func(ctx context.Context, frozen ...string) {
			name := apiserver.NamespacePrefix + quixtest.NewID()
			lift := freeze(ctx, name, frozen...)
			env := quixtest.Environment(ctx, quixtest.NewID(), func(env *quixv1.Environment) { env.GenerateName, env.Name = "", name })
			expect.Event(ctx, env, corev1.EventTypeWarning, quixv1.ReasonRefused)
			if len(frozen) == 1 && frozen[0] == updates {
				expect.Shows(ctx, env, quixv1.ConditionNamespaceReady, metav1.ConditionFalse, quixv1.ReasonRefused)
				Expect(env.Status.Phase).To(Equal(quixv1.PhaseFailed))
				Expect(env.Status.Message).To(And(ContainSubstring("finalizer"), ContainSubstring(apiserver.Refusal)))
			}
			Expect(apierrors.IsNotFound(k8s.Get(ctx, client.ObjectKey{Name: env.Spec.ID + "-qdep"}, &corev1.Namespace{}))).To(BeTrue(),
				"created without a finalizer, or without its name in the status")
			lift()
			expect.Settles(ctx, env, quixv1.PhaseReady)
			expect.Finalizer(ctx, env, quixv1.Finalizer)
		},
		Entry("of the resource", updates),
		Entry("of the status", statuses),
		Entry("of both", updates, statuses),
	)
})

// freeze lets the API server refuse the operator's writes of one Environment, which need not exist yet, until lift is
// called. It does not refuse other clients.
func freeze(ctx context.Context, name string, resources ...string) (lift func()) {
	GinkgoHelper()
	// Writes of another Environment show when the API server enforces the policy.
	probe := quixtest.Environment(ctx, quixtest.NewID(), func(env *quixv1.Environment) { env.GenerateName = "probe-" })
	expect.Settles(ctx, probe, quixv1.PhaseReady)
	as, look := apiserver.As(apiserver.OperatorUser), apiserver.RawPatch(`{"metadata":{"annotations":{"probe":"1"}},"status":{"message":"probe"}}`)
	var attempts []func() error
	for _, resource := range resources {
		attempts = append(attempts, func() error {
			if strings.HasSuffix(resource, "/status") {
				return as.Status().Patch(ctx, probe.DeepCopy(), look, &client.SubResourcePatchOptions{PatchOptions: client.PatchOptions{DryRun: []string{metav1.DryRunAll}}})
			}
			return as.Patch(ctx, probe.DeepCopy(), look, client.DryRunAll)
		})
	}
	return apiserver.Deny(ctx, apiserver.Denial{
		Name:  strings.Join([]string{"freeze", strings.ReplaceAll(strings.Join(resources, "-"), "/", "-"), name}, "-"),
		Group: quixv1.GroupVersion.Group, Resources: resources, Operation: "UPDATE",
		Conditions: []string{apiserver.ByOperator, "request.name in ['" + name + "', '" + probe.Name + "']"},
	}, attempts...)
}
