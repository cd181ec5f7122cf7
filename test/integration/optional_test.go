package integration

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

var _ = Describe("An API that is not installed", Serial, func() {
	It("stops only the instances that need it, until it is installed", func(ctx context.Context) {
		const name = "tlsroutes.gateway.networking.k8s.io"
		definition := &unstructured.Unstructured{}
		definition.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
		Expect(k8s.Get(ctx, client.ObjectKey{Name: name}, definition)).To(Succeed())
		again := &unstructured.Unstructured{Object: map[string]any{"spec": definition.Object["spec"]}}
		again.SetGroupVersionKind(definition.GroupVersionKind())
		again.SetName(name)
		again.SetAnnotations(definition.GetAnnotations()) // the approval that definitions of *.k8s.io need

		By("starting the operator on a cluster without it")
		stopOperator()
		Expect(k8s.Delete(ctx, definition)).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			Expect(client.IgnoreAlreadyExists(k8s.Create(ctx, again.DeepCopy()))).To(Succeed())
		})
		Eventually(serves).WithContext(ctx).WithArguments("gateway.networking.k8s.io/v1", "TLSRoute").Should(BeFalse())
		stopOperator = start(cfg, nil)

		ns := newNamespace(ctx)
		challenge(ctx, ns, "without", oneContainer)
		challenge(ctx, ns, "with", everyKind)
		without, with := instance(ctx, ns, "without"), instance(ctx, ns, "with")
		reaches(ctx, without, bergv1.PhaseRunning)
		reaches(ctx, with, bergv1.PhaseFailed)
		shows(ctx, with, bergv1.ConditionRoutesCreated, metav1.ConditionFalse, bergv1.ReasonAPINotInstalled)
		Expect(conditions(with)).To(ContainSubstring("TLSRoute"))
		deleted := instance(ctx, ns, "with")
		reaches(ctx, deleted, bergv1.PhaseFailed)
		Expect(k8s.Delete(ctx, deleted)).To(Succeed())
		gone(ctx, deleted)

		By("installing it")
		Expect(k8s.Create(ctx, again.DeepCopy())).To(Succeed())
		reaches(ctx, with, bergv1.PhaseRunning)
	})
})

// serves reports whether the API server serves a kind.
func serves(_ context.Context, groupVersion, kind string) (bool, error) {
	d, err := discovery.NewDiscoveryClientForConfig(restConfig)
	if err != nil {
		return false, err
	}
	resources, err := d.ServerResourcesForGroupVersion(groupVersion)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for _, r := range resources.APIResources {
		if r.Kind == kind {
			return true, nil
		}
	}
	return false, nil
}
