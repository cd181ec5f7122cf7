package docs

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/expect"
)

// example is the text of a fenced block of YAML, also where a shell reads it.
var example = regexp.MustCompile("(?s)\n```yaml\n(.*?)\n```\n|<<'EOF'\n(.*?)\nEOF\n")

var _ = Describe("The documentation", Label("versions"), func() {
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
