package docs

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/expect"
)

// example is the text of a fenced block of YAML, also where a shell reads it.
var example = regexp.MustCompile("(?s)\n```yaml\n(.*?)\n```\n|<<'EOF'\n(.*?)\nEOF\n")

// explained is what a page has kubectl explain.
var explained = regexp.MustCompile(`kubectl explain ([a-z.-]+[a-zA-Z]+)`)

// certManagersChallenge is a part of the CRD that cert-manager installs.
func certManagersChallenge() *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "challenges.acme.cert-manager.io"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "acme.cert-manager.io", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "challenges", Singular: "challenge", Kind: "Challenge", ListKind: "ChallengeList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}},
			}},
		},
	}
}

var _ = Describe("The documentation", func() {
	It("shows YAML that the API server accepts", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		tried := map[string]int{}
		for _, page := range pages() {
			text, err := os.ReadFile(page)
			Expect(err).NotTo(HaveOccurred())
			for _, m := range example.FindAllStringSubmatch(string(text), -1) {
				for _, object := range parseObjects(page, m[1]+m[2]) {
					tried[object.GetKind()]++
					// Nothing may depend on a namespace of the reader's.
					object.SetNamespace(ns)
					err := k8s.Apply(ctx, client.ApplyConfigurationFromUnstructured(object),
						client.FieldOwner("docs"), client.DryRunAll)
					Expect(err).NotTo(HaveOccurred(), "%s: %s %s", page, object.GetKind(), object.GetName())
				}
			}
		}
		Expect(tried).To(And(HaveKeyWithValue("Challenge", BeNumerically(">=", 3)), HaveKeyWithValue("ChallengeInstance", BeNumerically(">=", 4))))
	})

	It("explains fields by names that mean one kind, also with cert-manager", func(ctx context.Context) {
		scheme := runtime.NewScheme()
		Expect(apiextensionsv1.AddToScheme(scheme)).To(Succeed())
		definitions, err := client.New(apiserver.Config, client.Options{Scheme: scheme})
		Expect(err).NotTo(HaveOccurred())
		Expect(definitions.Create(ctx, certManagersChallenge())).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(definitions.Delete(ctx, certManagersChallenge())).To(Succeed()) })
		kubectl := func(args ...string) (string, error) {
			out, err := exec.CommandContext(ctx, "kubectl", args...).CombinedOutput()
			return string(out), err
		}
		Eventually(func() (string, error) { return kubectl("get", "challenges.acme.cert-manager.io", "-A") }).Should(ContainSubstring("No resources"))

		tried := 0
		for _, page := range pages() {
			text, err := os.ReadFile(page)
			Expect(err).NotTo(HaveOccurred())
			for _, m := range explained.FindAllStringSubmatch(string(text), -1) {
				tried++
				out, err := kubectl("explain", m[1])
				Expect(err).NotTo(HaveOccurred(), "%s: kubectl explain %s: %s", page, m[1], out)
				Expect(out).To(ContainSubstring("GROUP:      berg.norelect.ch"), "%s: kubectl explain %s", page, m[1])
			}
		}
		Expect(tried).To(BeNumerically(">=", 2))
	})

	It("shows Challenges that run", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		// One of them asks for it, and pods are refused without.
		class := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": "runsc",
			"metadata": map[string]any{"name": "gvisor"},
		}}
		Expect(client.IgnoreAlreadyExists(k8s.Create(ctx, class))).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			Expect(client.IgnoreNotFound(k8s.Delete(ctx, class))).To(Succeed())
		})
		text, err := os.ReadFile("../../../../docs/berg/challenge.md")
		Expect(err).NotTo(HaveOccurred())
		shown := 0
		for _, m := range example.FindAllStringSubmatch(string(text), -1) {
			for _, object := range parseObjects("docs/berg/challenge.md", m[1]) {
				if object.GetKind() != "Challenge" {
					continue
				}
				shown++
				object.SetNamespace(ns)
				Expect(k8s.Create(ctx, object)).To(Succeed())
				expect.Reaches(ctx, bergtest.Instance(ctx, ns, object.GetName()), "Running")
			}
		}
		Expect(shown).To(BeNumerically(">=", 2))
	})
})

// pages are the files that show YAML to users.
func pages() []string {
	GinkgoHelper()
	paths, err := filepath.Glob("../../../../docs/*.md")
	Expect(err).NotTo(HaveOccurred())
	below, err := filepath.Glob("../../../../docs/*/*.md")
	Expect(err).NotTo(HaveOccurred())
	return append(append(paths, below...), "../../../../README.md")
}

func parseObjects(page, text string) []*unstructured.Unstructured {
	GinkgoHelper()
	var out []*unstructured.Unstructured
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader([]byte(text)), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return out
		}
		Expect(err).NotTo(HaveOccurred(), "%s:\n%s", page, text)
		if strings.HasPrefix(object.GetAPIVersion(), "berg.norelect.ch/") {
			out = append(out, object)
		}
	}
}
