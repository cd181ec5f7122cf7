package operator

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/hexactftest"
	"github.com/bergctf/berg-operator/test/lib/kibashiptest"
	"github.com/bergctf/berg-operator/test/scorecard/examples"
)

// They run with the rights of config/scorecard/rbac and no other.
var _ = Describe("The examples of the bundles", func() {
	var (
		ns  string
		run examples.Run
	)

	BeforeEach(func(ctx context.Context) {
		ns = bergtest.Namespace(ctx)
		apiserver.LabelNamespace(ctx, ns, hexactftest.LabelOperator, "allowed")
		run = examples.Run{Namespace: ns, Timeout: 2 * time.Minute}
		var err error
		run.Documentation, err = examples.ReadDocumentation()
		Expect(err).NotTo(HaveOccurred())

		user := "system:serviceaccount:" + ns + ":scorecard"
		subjects := []any{map[string]any{"kind": rbacv1.UserKind, "apiGroup": rbacv1.GroupName, "name": user}}
		const rights = "../../../config/scorecard/rbac/"
		for _, d := range append(yamlDocuments(rights+"role.yaml"), yamlDocuments(rights+"rbac.yaml")...) {
			if strings.HasSuffix(d.GetKind(), "Binding") {
				d.Object["subjects"] = subjects
			}
			if !strings.HasPrefix(d.GetKind(), "Cluster") {
				d.SetNamespace(ns)
			}
			Expect(k8s.Apply(ctx, client.ApplyConfigurationFromUnstructured(&d), client.FieldOwner("integration"), client.ForceOwnership)).To(Succeed())
		}
		limited := rest.CopyConfig(restConfig)
		limited.Impersonate = rest.ImpersonationConfig{UserName: user}
		scheme := runtime.NewScheme()
		Expect(examples.AddToScheme(scheme)).To(Succeed())
		run.Client, err = client.New(limited, client.Options{Scheme: scheme})
		Expect(err).NotTo(HaveOccurred())
	})

	ofBundles := func() []unstructured.Unstructured {
		GinkgoHelper()
		others, err := filepath.Glob("../../../deploy/packages/*/bundle/manifests/*.clusterserviceversion.yaml")
		Expect(err).NotTo(HaveOccurred())
		Expect(others).To(HaveLen(4))
		var all []unstructured.Unstructured
		for _, file := range append(others, "../../../bundle/manifests/berg-operator.clusterserviceversion.yaml") {
			var some []unstructured.Unstructured
			Expect(json.Unmarshal([]byte(yamlDocuments(file)[0].GetAnnotations()["alm-examples"]), &some)).To(Succeed())
			all = append(all, some...)
		}
		return all
	}
	It("all run and leave nothing behind", func(ctx context.Context) {
		kibashiptest.Admin(ctx)
		outcomes, err := run.Try(ctx, ofBundles())
		Expect(err).NotTo(HaveOccurred())
		Expect(len(outcomes)).To(BeNumerically(">=", 4))
		for _, o := range outcomes {
			Expect(o.Problems).To(BeEmpty(), o.Name)
		}
		left := apiserver.List[bergv1.ChallengeList](ctx, client.InNamespace(ns))
		Expect(left.Items).To(BeEmpty())
	})
})

func yamlDocuments(path string) []unstructured.Unstructured {
	GinkgoHelper()
	text, err := os.ReadFile(path)
	Expect(err).NotTo(HaveOccurred())
	var all []unstructured.Unstructured
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var u unstructured.Unstructured
		Expect(yaml.Unmarshal([]byte(document), &u.Object)).To(Succeed())
		all = append(all, u)
	}
	return all
}
