package quix

import (
	"context"

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

var _ = Describe("A freeze of the status of an Environment", func() {
	It("keeps none that is gone", func(ctx context.Context) {
		env := quixtest.Environment(ctx, quixtest.NewID())
		expect.Settles(ctx, env, quixv1.PhaseReady)
		as, look := apiserver.As(apiserver.OperatorUser), apiserver.RawPatch(`{"status":{"message":"probe"}}`)
		apiserver.Deny(ctx, apiserver.Denial{
			Name:  "freeze-environment-" + env.Name,
			Group: quixv1.GroupVersion.Group, Resources: []string{"environments/status"}, Operation: "UPDATE",
			Conditions: []string{apiserver.ByOperator, "request.name == '" + env.Name + "'"},
		}, func() error {
			return as.Status().Patch(ctx, env.DeepCopy(), look, &client.SubResourcePatchOptions{PatchOptions: client.PatchOptions{DryRun: []string{metav1.DryRunAll}}})
		})
		Expect(k8s.Delete(ctx, env)).To(Succeed())
		expect.Gone(ctx, env)
		Expect(apierrors.IsNotFound(k8s.Get(ctx, client.ObjectKey{Name: env.Spec.ID + "-qdep"}, &corev1.Namespace{}))).To(BeTrue(), "its namespace exists")
	})
})
