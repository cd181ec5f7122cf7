package operator

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	"github.com/bergctf/berg-operator/cmd/berg-operator/families"
	"github.com/bergctf/berg-operator/internal/kit/family"
	"github.com/bergctf/berg-operator/internal/operator"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/limits"
)

// later is a family that the cluster gets during a spec.
const later = "later.example.com"

var _ = Describe("An operator whose settings name no API", func() {
	It("serves what is installed, and starts again when that changes", func(ctx SpecContext) {
		rc := rest.CopyConfig(apiserver.Config)
		rc.Impersonate = rest.ImpersonationConfig{UserName: apiserver.OperatorUser}
		kind := schema.GroupVersionKind{Group: later, Version: "v1", Kind: "Thing"}
		all := append(families.All(), family.Family{API: later, AddToScheme: runtime.NewSchemeBuilder(func(s *runtime.Scheme) error {
			s.AddKnownTypeWithName(kind, &quixv1.Environment{})
			return nil
		})})
		installation, err := operator.NewInstallation(rc, all, logr.Discard())
		Expect(err).NotTo(HaveOccurred())
		apis := func(ctx context.Context) []string {
			found, _, err := installation.Families(ctx)
			Expect(err).NotTo(HaveOccurred())
			var apis []string
			for _, f := range found {
				apis = append(apis, f.API)
			}
			return apis
		}
		// change ends with the running operator's wait for another installation.
		change := func() <-chan error {
			running, _, err := installation.Families(ctx)
			Expect(err).NotTo(HaveOccurred())
			ended := make(chan error, 1)
			go func() { ended <- installation.AwaitChange(ctx, running) }()
			return ended
		}
		before := apis(ctx)
		Expect(before).To(And(HaveLen(len(families.All())), Not(ContainElement(later))))
		ended := change()

		By("leaving a CRD alone that the operator has no rights to, as another operator's")
		definition := &apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: "things." + later},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Group: later, Scope: apiextensionsv1.ClusterScoped,
				Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "things", Singular: "thing", Kind: "Thing", ListKind: "ThingList"},
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
					Name: "v1", Served: true, Storage: true,
					Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}},
				}},
			},
		}
		scheme := runtime.NewScheme()
		Expect(apiextensionsv1.AddToScheme(scheme)).To(Succeed())
		definitions, err := client.New(apiserver.Config, client.Options{Scheme: scheme})
		Expect(err).NotTo(HaveOccurred())
		Expect(definitions.Create(ctx, definition)).To(Succeed())
		removed := false
		DeferCleanup(func(ctx context.Context) {
			if !removed {
				Expect(definitions.Delete(ctx, definition)).To(Succeed())
			}
		})
		Eventually(func(g Gomega) {
			_, more, err := installation.Families(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(more).To(BeTrue(), "a part of a family")
		}).Should(Succeed())
		Expect(apis(ctx)).To(Equal(before))
		Expect(ended).NotTo(Receive())

		By("looking soon again when it starts while an API is being installed")
		restarted := change()
		Consistently(restarted, 3*time.Second).ShouldNot(Receive())

		By("starting again when the rights are there, too")
		role := &rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: "later-things"},
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{later}, Resources: []string{"things"}, Verbs: []string{"list", "watch"}}},
		}
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "later-things"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "later-things"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: apiserver.OperatorUser}},
		}
		apiserver.Create(ctx, role)
		apiserver.Create(ctx, binding)
		Eventually(ended).Should(Receive(BeNil()))
		Eventually(restarted).WithTimeout(limits.Scaled(20*time.Second)).Should(Receive(BeNil()), "the next check is minutes away")
		Expect(apis(ctx)).To(Equal(append(before, later)))

		By("starting again when the CRD is removed")
		ended = change()
		Expect(definitions.Delete(ctx, definition)).To(Succeed())
		removed = true
		Eventually(ended).Should(Receive(BeNil()))
		Expect(apis(ctx)).To(Equal(before))
	})
})
