package kibaship

import (
	"context"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/google/go-containerregistry/pkg/name"
	ggcr "github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kibaship/registry"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/kibashiptest"
	"github.com/bergctf/berg-operator/test/lib/transport"
)

// trouble is an API server that fails at some requests until it is over.
type trouble struct {
	match func(*http.Request) bool
	over  atomic.Bool
}

func (t *trouble) wrap(next http.RoundTripper) http.RoundTripper {
	return transport.Func(func(r *http.Request) (*http.Response, error) {
		if t.over.Load() || !t.match(r) {
			return next.RoundTrip(r)
		}
		return transport.Refusal(r, http.StatusInternalServerError, metav1.StatusReasonInternalError, "the store is on fire"), nil
	})
}

// What the system that this one replaces did wrong when a request failed.
var _ = Describe("When the API server fails,", Serial, func() {
	It("a namespace that was made a moment ago stays, and the project continues in it", func(ctx context.Context) {
		t := &trouble{match: func(r *http.Request) bool {
			return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/serviceaccounts")
		}}
		inprocess.Restart(nil, t.wrap)
		p := kibashiptest.Project(ctx, kibashiptest.NewName())
		expect.Shows(ctx, p, kibashipv1.ConditionAccessReady, metav1.ConditionFalse, kibashipv1.ReasonWriteFailed)
		expect.Reaches(ctx, p, kibashipv1.ProjectPending)
		Expect(p.Status.Message).To(ContainSubstring("the store is on fire"))
		ns := apiserver.Get[corev1.Namespace](ctx, client.ObjectKey{Name: kibashiptest.Namespace(p.Name)})
		made := ns.UID
		t.over.Store(true)
		expect.Settles(ctx, p, kibashipv1.ProjectReady)
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(ns), ns)).To(Succeed())
		Expect(ns.UID).To(Equal(made))
	})

	It("rights that cannot be taken away first are reported, and go with the namespace", func(ctx context.Context) {
		p := kibashiptest.Ready(ctx)
		binding := "/rolebindings/project-" + p.Name + "-admin-binding-kibaship-com" // p is read again while the operator runs
		t := &trouble{match: func(r *http.Request) bool {
			return r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, binding)
		}}
		inprocess.Restart(nil, t.wrap)
		Expect(k8s.Delete(ctx, p)).To(Succeed())
		expect.Event(ctx, p, corev1.EventTypeWarning, kibashipv1.ReasonDeletionBlocked)
		expect.Gone(ctx, p)
		expect.Gone(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: kibashiptest.Namespace(p.Name)}})
	})
})

var _ = Describe("The samples", Serial, func() {
	It("are taken, one after the other, and say where they stand", func(ctx context.Context) {
		// What a sample names is on the Internet, where no test goes.
		server := httptest.NewServer(ggcr.New(ggcr.Logger(log.New(GinkgoWriter, "", 0))))
		DeferCleanup(server.Close)
		DeferCleanup(registry.Exempt(netip.MustParsePrefix("127.0.0.0/8")))
		host := strings.TrimPrefix(server.URL, "http://")
		pushed, err := random.Image(64, 1)
		Expect(err).NotTo(HaveOccurred())
		sample := func(file string, into client.Object) {
			GinkgoHelper()
			text, err := os.ReadFile(filepath.Join("..", "..", "..", "config", "kibaship", "samples", "platform_v1alpha1_"+file+".yaml"))
			Expect(err).NotTo(HaveOccurred())
			of := apiserver.Object(string(text))
			if image, tag := textOf(of, "spec", "dockerImage", "image"), textOf(of, "spec", "dockerImage", "tag"); image != "" {
				_, path, found := strings.Cut(image, "/")
				Expect(found).To(BeTrue(), "the image names its registry")
				Expect(unstructured.SetNestedField(of.Object, host+"/"+path, "spec", "dockerImage", "image")).To(Succeed())
				here, err := name.NewTag(host + "/" + path + ":" + tag)
				Expect(err).NotTo(HaveOccurred())
				Expect(remote.Write(here, pushed)).To(Succeed())
			}
			into.SetNamespace(of.GetNamespace())
			into.SetName(of.GetName())
			Expect(k8s.Create(ctx, of)).To(Succeed())
		}
		p, a, d := &kibashipv1.Project{}, &kibashipv1.Application{}, &kibashipv1.Deployment{}
		sample("project", p)
		DeferCleanup(func(ctx context.Context) {
			expect.Removed(ctx, p)
		})
		expect.Settles(ctx, p, kibashipv1.ProjectReady)
		sample("application", a)
		expect.Settles(ctx, a, kibashipv1.ApplicationReady)
		sample("deployment", d)
		expect.Shows(ctx, d, kibashipv1.ConditionApplicationReady, metav1.ConditionTrue, kibashipv1.ReasonApplicationReady)
		expect.Shows(ctx, d, kibashipv1.ConditionSucceeded, metav1.ConditionTrue, kibashipv1.ReasonImageResolved)

		By("those of a repository, which is not built here")
		source, wanted := &kibashipv1.Application{}, &kibashipv1.Deployment{}
		sample("application_git", source)
		expect.Settles(ctx, source, kibashipv1.ApplicationReady)
		sample("deployment_git", wanted)
		expect.Shows(ctx, wanted, kibashipv1.ConditionApplicationReady, metav1.ConditionTrue, kibashipv1.ReasonApplicationReady)
		expect.Shows(ctx, wanted, kibashipv1.ConditionPipelineAvailable, metav1.ConditionFalse, kibashipv1.ReasonPipelineUnavailable)
	})

	It("are all listed, and none else", func() {
		dir := filepath.Join("..", "..", "..", "config", "kibaship", "samples")
		text, err := os.ReadFile(filepath.Join(dir, "kustomization.yaml"))
		Expect(err).NotTo(HaveOccurred())
		var listed struct {
			Resources []string `json:"resources"`
		}
		Expect(yaml.Unmarshal(text, &listed)).To(Succeed())
		files, err := filepath.Glob(filepath.Join(dir, "platform_*.yaml"))
		Expect(err).NotTo(HaveOccurred())
		for i := range files {
			files[i] = filepath.Base(files[i])
		}
		Expect(listed.Resources).To(ConsistOf(files))
	})
})

// textOf is a text in an object, "" where there is none.
func textOf(of *unstructured.Unstructured, path ...string) string {
	text, _, _ := unstructured.NestedString(of.Object, path...)
	return text
}
