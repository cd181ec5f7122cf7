package operator

import (
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
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
	"github.com/bergctf/berg-operator/docs"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/kibashiptest"
	"github.com/bergctf/berg-operator/test/scorecard/examples"
)

// The scorecard's own test can tell a good bundle from a bad one, with the rights
// of config/scorecard/rbac and no other.
var _ = Describe("The examples of the bundles", func() {
	var (
		ns  string
		run examples.Run
	)

	BeforeEach(func(ctx context.Context) {
		ns = bergtest.Namespace(ctx)
		run = examples.Run{Namespace: ns, Timeout: 2 * time.Minute}
		pages, err := fs.Glob(docs.Pages, "*/*.md")
		Expect(err).NotTo(HaveOccurred())
		for _, page := range pages {
			if folder := path.Dir(page); folder != "adr" && folder != "runbooks" {
				text, err := docs.Pages.ReadFile(page)
				Expect(err).NotTo(HaveOccurred())
				run.Documentation += string(text)
			}
		}

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
	// problems tries the examples and returns what is wrong with the one named web.
	problems := func(ctx context.Context, all []unstructured.Unstructured) string {
		GinkgoHelper()
		outcomes, err := run.Try(ctx, all)
		Expect(err).NotTo(HaveOccurred())
		for _, o := range outcomes {
			if o.Name == "web" {
				return strings.Join(o.Problems, "\n")
			}
		}
		Fail("there is no outcome for web")
		return ""
	}
	onlyWeb := func(change func(challenge *unstructured.Unstructured)) []unstructured.Unstructured {
		var all []unstructured.Unstructured
		for _, e := range ofBundles() {
			if e.GetName() == "web" {
				if e.GetKind() == "Challenge" {
					change(&e)
				}
				all = append(all, e)
			}
		}
		return all
	}
	setImage := func(image string) func(*unstructured.Unstructured) {
		return func(c *unstructured.Unstructured) {
			containers, _, _ := unstructured.NestedSlice(c.Object, "spec", "containers")
			containers[0].(map[string]any)["image"] = image
			Expect(unstructured.SetNestedSlice(c.Object, containers, "spec", "containers")).To(Succeed())
		}
	}

	It("all run and leave nothing behind", func(ctx context.Context) {
		kibashiptest.Admin(ctx)
		outcomes, err := run.Try(ctx, ofBundles())
		Expect(err).NotTo(HaveOccurred())
		Expect(len(outcomes)).To(BeNumerically(">=", 4))
		for _, o := range outcomes {
			Expect(o.Problems).To(BeEmpty(), o.Name)
		}
		var left bergv1.ChallengeList
		Expect(k8s.List(ctx, &left, client.InNamespace(ns))).To(Succeed())
		Expect(left.Items).To(BeEmpty())
	})

	It("are refused when one does not start", func(ctx context.Context) {
		run.Timeout = 10 * time.Second
		Expect(problems(ctx, onlyWeb(setImage("berg.test/behaviour/not-ready")))).To(ContainSubstring("does not run: phase Starting"))
	})

	It("are refused when one cannot be built", func(ctx context.Context) {
		Expect(problems(ctx, onlyWeb(func(c *unstructured.Unstructured) {
			unstructured.RemoveNestedField(c.Object, "spec", "containers")
		}))).To(ContainSubstring("does not run: phase Failed"))
	})

	It("are refused when an Environment is not", func(ctx context.Context) {
		all := slices.DeleteFunc(ofBundles(), func(e unstructured.Unstructured) bool { return e.GetKind() != "Environment" })
		Expect(all).To(HaveLen(1))
		Expect(unstructured.SetNestedField(all[0].Object, "no label", "spec", "labels", "quix.io/team")).To(Succeed())
		run.Documentation = strings.ReplaceAll(run.Documentation, "`RoleValidated`", "")
		outcomes, err := run.Try(ctx, all)
		Expect(err).NotTo(HaveOccurred())
		Expect(outcomes).To(HaveLen(1))
		Expect(strings.Join(outcomes[0].Problems, "\n")).To(And(
			ContainSubstring("does not run: phase Failed"), ContainSubstring("the condition RoleValidated is not documented")))
	})

	It("are refused when a field is not one of the kind's", func(ctx context.Context) {
		_, err := run.Try(ctx, onlyWeb(func(c *unstructured.Unstructured) { c.Object["spec"].(map[string]any)["colour"] = "red" }))
		Expect(err).To(MatchError(ContainSubstring("colour")))
	})

	It("are refused when a condition or an event is not documented", func(ctx context.Context) {
		run.Documentation = strings.ReplaceAll(strings.ReplaceAll(run.Documentation, "`Healthy`", ""), "`InstanceReady`", "")
		Expect(problems(ctx, onlyWeb(func(*unstructured.Unstructured) {}))).
			To(And(ContainSubstring("the condition Healthy is not documented"), ContainSubstring("the event InstanceReady is not documented")))
	})

	It("are refused when one is not deleted", func(ctx context.Context) {
		const finalizer = "berg.test/hold"
		run.Timeout = 20 * time.Second
		// A foreign finalizer keeps the instance.
		DeferCleanup(func(ctx context.Context) {
			for _, i := range instancesOf(ctx, ns) {
				patch := client.MergeFrom(i.DeepCopy())
				i.Finalizers = slices.DeleteFunc(i.Finalizers, func(f string) bool { return f == finalizer })
				Expect(k8s.Patch(ctx, &i, patch)).To(Succeed())
			}
		})
		go func() {
			defer GinkgoRecover()
			Eventually(func(g Gomega) {
				all := instancesOf(ctx, ns)
				g.Expect(all).To(HaveLen(1))
				patch := client.MergeFrom(all[0].DeepCopy())
				all[0].Finalizers = append(all[0].Finalizers, finalizer)
				g.Expect(k8s.Patch(ctx, &all[0], patch)).To(Succeed())
			}).WithContext(ctx).Should(Succeed())
		}()
		Expect(problems(ctx, onlyWeb(func(*unstructured.Unstructured) {}))).To(ContainSubstring("was deleted and is not gone"))
	})
})

func instancesOf(ctx context.Context, namespace string) []bergv1.ChallengeInstance {
	GinkgoHelper()
	var all bergv1.ChallengeInstanceList
	Expect(k8s.List(ctx, &all, client.InNamespace(namespace))).To(Succeed())
	return all.Items
}

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
