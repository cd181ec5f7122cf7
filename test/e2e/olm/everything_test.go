package olm

import (
	"context"
	"errors"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/internal/kit/admissionpolicy"
	"github.com/bergctf/berg-operator/test/lib/limits"
	"github.com/bergctf/berg-operator/test/lib/residue"
)

// everything is the package that make bundle-all generates.
const everything = "berg-operator-all"

var _ = Describe("One package with every API", Ordered, func() {
	var before sets.Set[string]

	BeforeAll(func(ctx SpecContext) {
		var err error
		before, err = residue.Objects(ctx)
		Expect(err).NotTo(HaveOccurred())
		prepare(ctx, everything)
		Expect(world.Create(ctx, &operatorsv1alpha1.Subscription{
			ObjectMeta: metav1.ObjectMeta{Namespace: shared, Name: everything},
			Spec:       &operatorsv1alpha1.SubscriptionSpec{Package: everything, CatalogSource: catalogName, CatalogSourceNamespace: shared},
		})).To(Succeed())
	}, NodeTimeout(limits.Scaled(time.Minute)))

	AfterEach(func(ctx SpecContext) {
		if CurrentSpecReport().Failed() {
			reportPackages(ctx)
		}
	}, NodeTimeout(limits.Scaled(time.Minute)))

	It("is installed, with the admission policies", func(ctx SpecContext) {
		expectSettled(ctx, 2*installLimit, everythingInstalled)
		gap, err := admissionpolicy.Read(ctx, world, admissionpolicy.Fence)
		Expect(err).NotTo(HaveOccurred())
		Expect(gap).To(BeEmpty())
	}, SpecTimeout(3*installLimit))

	It("works on the resources of all", func(ctx SpecContext) {
		expectWork(ctx)
	}, SpecTimeout(6*instanceLimit))

	It("leaves nothing when it is removed with its definitions", func(ctx SpecContext) {
		expectNothingLeft(ctx, before, []string{everything}, []string{packageName})
	}, SpecTimeout(6*instanceLimit))
})

// everythingInstalled is nil if OLM calls the package installed, and the operator and its installer are ready.
func everythingInstalled(ctx context.Context) error {
	version := &operatorsv1alpha1.ClusterServiceVersion{}
	if err := world.Get(ctx, client.ObjectKey{Namespace: shared, Name: everything + ".v" + head}, version); err != nil {
		return err
	}
	if version.Status.Phase != operatorsv1alpha1.CSVPhaseSucceeded {
		return errors.New(describe([]operatorsv1alpha1.ClusterServiceVersion{*version}))
	}
	for _, name := range []string{deploymentName, packageName + "-installer"} {
		deployment := &appsv1.Deployment{}
		if err := world.Get(ctx, client.ObjectKey{Namespace: shared, Name: name}, deployment); err != nil {
			return err
		}
		status, want := deployment.Status, *deployment.Spec.Replicas
		if status.ObservedGeneration < deployment.Generation || status.UpdatedReplicas != want || status.AvailableReplicas != want {
			return fmt.Errorf("Deployment %s is being rolled out: %+v", name, status)
		}
	}
	return nil
}
