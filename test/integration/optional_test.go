package integration

import (
	"context"
	"time"

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

// api is one that a cluster may lack.
type api struct{ definition, groupVersion, kind string }

var (
	httpRoutes     = api{"httproutes.gateway.networking.k8s.io", "gateway.networking.k8s.io/v1", "HTTPRoute"}
	tlsRoutes      = api{"tlsroutes.gateway.networking.k8s.io", "gateway.networking.k8s.io/v1", "TLSRoute"}
	ciliumPolicies = api{"ciliumnetworkpolicies.cilium.io", "cilium.io/v2", "CiliumNetworkPolicy"}
)

const (
	noRoutes = `containers: [{hostname: web, image: "example.com/web:1", ports: [{name: web, port: 8080, type: publicPort}]}]`
	tlsOnly  = `containers: [{hostname: web, image: "example.com/web:1", ports: [{name: web, port: 8080, type: publicTlsRoute}]}]`
)

var _ = Describe("An API that is not installed", Serial, func() {
	DescribeTable("stops only the instances that need it, until it is installed",
		func(ctx context.Context, missing api, policy, runs, waits, condition string) {
			By("starting the operator on a cluster without it")
			stopOperator()
			install := uninstall(ctx, missing)
			restartWith(map[string]string{"NETWORK_POLICY": policy}, nil)

			ns := newNamespace(ctx)
			if runs != "" {
				challenge(ctx, ns, "runs", runs)
				reaches(ctx, instance(ctx, ns, "runs"), bergv1.PhaseRunning)
			}
			if waits == "" {
				return
			}
			challenge(ctx, ns, "waits", waits)
			waiting, deleted := instance(ctx, ns, "waits"), instance(ctx, ns, "waits")
			for _, i := range []*bergv1.ChallengeInstance{waiting, deleted} {
				reaches(ctx, i, bergv1.PhaseFailed)
				shows(ctx, i, condition, metav1.ConditionFalse, bergv1.ReasonAPINotInstalled)
				Expect(conditions(i)).To(ContainSubstring(missing.kind))
			}
			Expect(k8s.Delete(ctx, deleted)).To(Succeed())
			gone(ctx, deleted)

			By("installing it")
			install(ctx)
			reaches(ctx, waiting, bergv1.PhaseRunning)
			shows(ctx, waiting, condition, metav1.ConditionTrue, bergv1.ReasonCreated)
		},
		Entry("TLSRoute", tlsRoutes, "cilium", oneContainer, everyKind, bergv1.ConditionRoutesCreated),
		Entry("HTTPRoute", httpRoutes, "cilium", tlsOnly, everyKind, bergv1.ConditionRoutesCreated),
		Entry("Cilium, wanted", ciliumPolicies, "cilium", "", noRoutes, bergv1.ConditionNetworkPolicyCreated),
		Entry("Cilium, wanted beside the other", ciliumPolicies, "both", "", noRoutes, bergv1.ConditionNetworkPolicyCreated),
		Entry("Cilium, not wanted", ciliumPolicies, "kubernetes", everyKind, "", ""),
	)

	It("may be removed and installed again while the operator runs", func(ctx context.Context) {
		seen := &requests{}
		restartWith(nil, seen.wrap)
		ns := newNamespace(ctx)
		challenge(ctx, ns, "without", oneContainer)
		challenge(ctx, ns, "with", everyKind)
		without, with, deleted := instance(ctx, ns, "without"), instance(ctx, ns, "with"), instance(ctx, ns, "with")
		for _, i := range []*bergv1.ChallengeInstance{without, with, deleted} {
			reaches(ctx, i, bergv1.PhaseRunning)
		}
		before := with.Status.Services

		install := uninstall(ctx, tlsRoutes)
		for _, i := range []*bergv1.ChallengeInstance{with, deleted} {
			shows(ctx, i, bergv1.ConditionRoutesCreated, metav1.ConditionFalse, bergv1.ReasonAPINotInstalled)
			Expect(i.Status.Phase).To(Equal(bergv1.PhaseFailed))
		}
		shows(ctx, without, bergv1.ConditionRoutesCreated, metav1.ConditionTrue, bergv1.ReasonCreated)
		Expect(without.Status.Phase).To(Equal(bergv1.PhaseRunning))

		By("leaving the API server alone")
		asked := len(seen.to("/tlsroutes"))
		// A watch that lost its API tries again with pauses of up to a minute.
		Consistently(func() int { return len(seen.to("/tlsroutes")) - asked }).WithContext(ctx).WithTimeout(5 * time.Second).Should(BeNumerically("<", 15))

		By("ending and making instances without it")
		Expect(k8s.Delete(ctx, deleted)).To(Succeed())
		gone(ctx, deleted)
		reaches(ctx, instance(ctx, ns, "without"), bergv1.PhaseRunning)
		late := instance(ctx, ns, "with")
		shows(ctx, late, bergv1.ConditionRoutesCreated, metav1.ConditionFalse, bergv1.ReasonAPINotInstalled)

		By("installing it again")
		install(ctx)
		for _, i := range []*bergv1.ChallengeInstance{with, late} {
			reaches(ctx, i, bergv1.PhaseRunning)
			shows(ctx, i, bergv1.ConditionRoutesCreated, metav1.ConditionTrue, bergv1.ReasonCreated)
		}
		Expect(with.Status.Services).To(Equal(before), "players must connect elsewhere now")
	})
})

// uninstall removes an API until the spec ends or install is called.
func uninstall(ctx context.Context, a api) (install func(context.Context)) {
	GinkgoHelper()
	definition := &unstructured.Unstructured{}
	definition.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	Expect(k8s.Get(ctx, client.ObjectKey{Name: a.definition}, definition)).To(Succeed())
	again := &unstructured.Unstructured{Object: map[string]any{"spec": definition.Object["spec"]}}
	again.SetGroupVersionKind(definition.GroupVersionKind())
	again.SetName(a.definition)
	again.SetAnnotations(definition.GetAnnotations()) // the approval that definitions of *.k8s.io need

	Expect(k8s.Delete(ctx, definition)).To(Succeed())
	install = func(ctx context.Context) {
		GinkgoHelper()
		Expect(client.IgnoreAlreadyExists(k8s.Create(ctx, again.DeepCopy()))).To(Succeed())
		Eventually(serves).WithContext(ctx).WithArguments(a).Should(BeTrue())
	}
	DeferCleanup(install)
	Eventually(serves).WithContext(ctx).WithArguments(a).Should(BeFalse())
	return install
}

// serves reports whether the API server serves a kind.
func serves(_ context.Context, a api) (bool, error) {
	d, err := discovery.NewDiscoveryClientForConfig(restConfig)
	if err != nil {
		return false, err
	}
	resources, err := d.ServerResourcesForGroupVersion(a.groupVersion)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for _, r := range resources.APIResources {
		if r.Kind == a.kind {
			return true, nil
		}
	}
	return false, nil
}
