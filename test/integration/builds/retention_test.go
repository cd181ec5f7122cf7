package builds

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	ggcr "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kibaship/registry"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/installed"
)

// began is what the times of commits are counted from.
var began = time.Now()

// The Secret with the login that may delete.
const loginNamespace, loginName = "kibaship-images", "cleanup"

var cleaner = authn.Basic{Username: "cleaner", Password: "may-delete-images"}

// store is a registry in this process whose deletions need a login.
type store struct {
	host      string
	deletions atomic.Int32
	// onDelete answers a deletion itself, or is called before it; nil for neither.
	onDelete atomic.Pointer[func(http.ResponseWriter, *http.Request) (answered bool)]
}

func newStore() *store {
	GinkgoHelper()
	s, images := &store{}, ggcr.New(ggcr.Logger(log.New(GinkgoWriter, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); r.URL.Path == "/v2/" && user == "" {
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		} else if r.Method == http.MethodDelete {
			if user != cleaner.Username || password != cleaner.Password {
				w.WriteHeader(http.StatusForbidden)
				return
			}
			s.deletions.Add(1)
			if on := s.onDelete.Load(); on != nil && (*on)(w, r) {
				return
			}
		}
		images.ServeHTTP(w, r)
	}))
	DeferCleanup(server.Close)
	DeferCleanup(registry.Exempt(loopback))
	s.host = strings.TrimPrefix(server.URL, "http://")
	return s
}

func (s *store) tag(w world, tag string) name.Tag {
	return must(name.NewTag(s.host + "/kibaship/" + w.project + "/web:" + tag))
}

func must[T any](value T, err error) T {
	GinkgoHelper()
	Expect(err).NotTo(HaveOccurred())
	return value
}

// push pushes an image of a commit some days old, and returns its digest.
func (s *store) push(w world, n, days int, tags ...string) string {
	GinkgoHelper()
	image := must(mutate.CreatedAt(empty.Image, v1.Time{Time: began.AddDate(0, 0, -days).Add(time.Duration(n) * time.Second)}))
	for _, tag := range append(tags, sha(n)) {
		Expect(remote.Write(s.tag(w, tag), image, remote.WithAuth(&cleaner))).To(Succeed())
	}
	return must(image.Digest()).String()
}

// has are the commits whose images the registry has.
func (s *store) has(w world) (commits []int) {
	for n := range 10 {
		found, err := remote.Head(s.tag(w, sha(n)), remote.WithAuth(&cleaner))
		if err != nil {
			continue
		}
		if _, err := remote.Head(s.tag(w, sha(n)).Context().Digest(found.Digest.String()), remote.WithAuth(&cleaner)); err == nil {
			commits = append(commits, n)
		}
	}
	return commits
}

// allowCleanUp gives the operator the right of config/kibaship/retention and the login that may delete, until the spec ends.
func allowCleanUp(ctx context.Context, s *store) {
	GinkgoHelper()
	Expect(installed.Folder(ctx, k8s, "config/kibaship/retention", "integration")).To(Succeed())
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: loginNamespace, Name: loginName},
		StringData: map[string]string{".dockerconfigjson": fmt.Sprintf(`{"auths":{%q:{"username":%q,"password":%q}}}`, s.host, cleaner.Username, cleaner.Password)},
	}
	Expect(k8s.Create(ctx, secret)).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		Expect(k8s.Delete(ctx, secret)).To(Succeed())
		Expect(k8s.Delete(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: loginNamespace, Name: "berg-operator-kibaship-retention"}})).To(Succeed())
	})
	Eventually(func() bool { return mayReadLogin(ctx) }).Should(BeTrue())
}

func mayReadLogin(ctx context.Context) bool {
	return apiserver.May(ctx, apiserver.OperatorUser, authorizationv1.ResourceAttributes{Namespace: loginNamespace, Resource: "secrets", Name: loginName, Verb: "get"})
}

// retaining starts the operator with the clean-up on, for a registry.
func (s *store) retaining() map[string]string {
	return map[string]string{"BUILD_REGISTRY": s.host + "/kibaship", "IMAGE_CLEANUP": "true", "IMAGE_RETENTION_COUNT": "2", "IMAGE_RETENTION_AGE": "240h"}
}

// look has the operator look through the images of an Application, by a change that has no other effect.
func (w world) look(ctx context.Context) {
	GinkgoHelper()
	apiserver.Change(ctx, w.app, func() {
		kept := ptr.Deref(w.app.Spec.ImageRetention, kibashipv1.ImageRetention{})
		age := time.Duration(240) * time.Hour
		if kept.Age != nil {
			age = kept.Age.Duration + time.Second
		}
		kept.Age = &metav1.Duration{Duration: age}
		w.app.Spec.ImageRetention = &kept
	})
}

var _ = Describe("Images of earlier builds", Serial, func() {
	var s *store
	BeforeEach(func() { s = newStore() })

	It("stay while the clean-up is off, and while it has no right of its own", func(ctx SpecContext) {
		inprocess.Restart(map[string]string{"BUILD_REGISTRY": s.host + "/kibaship"}, nil)
		w := newWorld(ctx, git())
		for n := range 5 {
			s.push(w, n, 60)
		}
		w.look(ctx)
		Consistently(func() []int { return s.has(w) }, 2*time.Second).Should(HaveLen(5))
		Eventually(func() bool { return mayReadLogin(ctx) }).Should(BeFalse())
		inprocess.Restart(s.retaining(), nil)
		expect.Shows(ctx, w.app, kibashipv1.ConditionImagesCleanedUp, metav1.ConditionFalse, kibashipv1.ReasonCleanUpFailed)
		expect.Says(ctx, w.app, "config/kibaship/retention")
		expect.Shows(ctx, w.app, kibashipv1.ConditionReady, metav1.ConditionTrue, kibashipv1.ReasonApplicationReady)
		Expect(s.has(w)).To(HaveLen(5))

		allowCleanUp(ctx, s)
		Eventually(func() []int { return s.has(w) }, time.Minute).Should(Equal([]int{3, 4}))
		expect.Shows(ctx, w.app, kibashipv1.ConditionImagesCleanedUp, metav1.ConditionTrue, kibashipv1.ReasonImagesCleanedUp)

		By("turning it off again: the condition goes")
		inprocess.Restart(map[string]string{"BUILD_REGISTRY": s.host + "/kibaship"}, nil)
		expect.Becomes(ctx, w.app, func(g Gomega) {
			g.Expect(w.app.Status.Conditions).NotTo(ContainElement(HaveField("Type", kibashipv1.ConditionImagesCleanedUp)))
		})
	})

	It("go by count and age, and none that something names", func(ctx SpecContext) {
		allowCleanUp(ctx, s)
		inprocess.Restart(s.retaining(), nil)
		w := newWorld(ctx, git())
		other := newWorld(ctx, git())
		digests := map[int]string{}
		for n := range 9 {
			digests[n] = s.push(w, n, 60)
			s.push(other, n, 5)
		}
		digests[9] = s.push(w, 9, 5, "v1.0.0")
		s.push(w, 6, 60, "v0.9.0")
		repository := s.host + "/kibaship/" + w.project + "/web"

		By("naming images in a Deployment, an Application of another Project, and a pod")
		d := w.deploy(ctx, sha(0))
		run := w.running(ctx, d)
		apiserver.Create(ctx, &kibashipv1.Application{
			ObjectMeta: metav1.ObjectMeta{Namespace: other.namespace, Name: "project-" + other.project + "-app-copy-kibaship-com"},
			Spec: kibashipv1.ApplicationSpec{
				ProjectRef: kibashipv1.LocalReference{Name: other.project}, Type: kibashipv1.TypeDockerImage,
				DockerImage: &kibashipv1.DockerImage{Image: repository + "@" + digests[1]},
			},
		})
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "program"}, Spec: corev1.PodSpec{
			NodeSelector: map[string]string{"no": "node"}, Containers: []corev1.Container{{Name: "x", Image: repository + "@" + digests[2]}},
		}}
		apiserver.Create(ctx, pod)
		w.look(ctx)
		Consistently(func() []int { return s.has(w) }, 2*time.Second).Should(HaveLen(10), "while a build runs")

		w.ends(ctx, run, "True", "Succeeded", succeeded(
			step("clone", 0, map[string]string{"commit": sha(0)}), step("push", 0, map[string]string{"digest": digests[3]})))
		// 0: asked for; 1: Application; 2: pod; 3: built; 6: has a tag of a person; 8, 9: the newest.
		Eventually(func() []int { return s.has(w) }, time.Minute).Should(Equal([]int{0, 1, 2, 3, 6, 8, 9}))
		expect.Shows(ctx, w.app, kibashipv1.ConditionImagesCleanedUp, metav1.ConditionTrue, kibashipv1.ReasonImagesCleanedUp)
		expect.Says(ctx, w.app, "has 7 images") // the condition was True before
		Expect(s.has(other)).To(HaveLen(9), "none of them is old")

		By("looking again: nothing is deleted or written")
		version, deletions := w.app.ResourceVersion, s.deletions.Load()
		inprocess.Restart(s.retaining(), nil)
		Consistently(func() string {
			Expect(k8s.Get(ctx, client.ObjectKeyFromObject(w.app), w.app)).To(Succeed())
			return w.app.ResourceVersion
		}, 2*time.Second).Should(Equal(version))
		Expect(s.deletions.Load()).To(Equal(deletions))
	})

	It("come back if something names them while they are deleted", func(ctx SpecContext) {
		allowCleanUp(ctx, s)
		inprocess.Restart(s.retaining(), nil)
		w := newWorld(ctx, git())
		var once sync.Once
		named := func(http.ResponseWriter, *http.Request) bool {
			once.Do(func() {
				defer GinkgoRecover()
				w.secret(ctx, registrySecret)
				d := w.create(ctx, sha(0)) // it is built already: by a run of a Deployment that is gone
				apiserver.Create(ctx, &kibashipv1.Application{
					ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "project-" + w.project + "-app-copy-kibaship-com"},
					Spec: kibashipv1.ApplicationSpec{
						ProjectRef: kibashipv1.LocalReference{Name: w.project}, Type: kibashipv1.TypeDockerImage,
						DockerImage: &kibashipv1.DockerImage{Image: s.tag(w, sha(1)).String()},
					},
				})
				w.running(ctx, d)
			})
			return false
		}
		s.onDelete.Store(&named)
		for n := range 5 {
			s.push(w, n, 60)
		}
		w.look(ctx)
		Eventually(func(g Gomega) { // this registry keeps tags, so each of the three images takes two requests
			g.Expect(s.deletions.Load()).To(BeNumerically(">=", 6))
			g.Expect(s.has(w)).To(HaveLen(5), "a build runs, which may push any of them")
		}).WithTimeout(time.Minute).Should(Succeed())
		Consistently(func() []int { return s.has(w) }, time.Second).Should(HaveLen(5))
		run := w.running(ctx, apiserver.Get[kibashipv1.Deployment](ctx, client.ObjectKey{Namespace: w.namespace, Name: "project-" + w.project + "-app-web-deployment-live-kibaship-com"}))
		w.ends(ctx, run, "False", "Failed", failed("StepFailed", "x", step("clone", 1, nil)))
		Eventually(func() []int { return s.has(w) }, time.Minute).Should(Equal([]int{0, 1, 3, 4}), "2 is named by nothing")
		Consistently(func() []int { return s.has(w) }, time.Second).Should(Equal([]int{0, 1, 3, 4}))
	})

	It("stay in a registry that deletes nothing, which a condition says once", func(ctx SpecContext) {
		allowCleanUp(ctx, s)
		refuse := func(w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(http.StatusMethodNotAllowed)
			_, _ = w.Write([]byte(`{"errors":[{"code":"UNSUPPORTED"}]}`))
			return true
		}
		s.onDelete.Store(&refuse)
		inprocess.Restart(s.retaining(), nil)
		w := newWorld(ctx, git())
		for n := range 5 {
			s.push(w, n, 60)
		}
		w.look(ctx)
		expect.Shows(ctx, w.app, kibashipv1.ConditionImagesCleanedUp, metav1.ConditionFalse, kibashipv1.ReasonDeletionRefused)
		index := slices.IndexFunc(w.app.Status.Conditions, func(c metav1.Condition) bool { return c.Type == kibashipv1.ConditionImagesCleanedUp })
		Expect(w.app.Status.Conditions[index].Message).To(And(ContainSubstring("405"), ContainSubstring("IMAGE_CLEANUP=false"), Not(ContainSubstring(cleaner.Password))))
		version := w.app.ResourceVersion
		Consistently(func() string {
			Expect(k8s.Get(ctx, client.ObjectKeyFromObject(w.app), w.app)).To(Succeed())
			return w.app.ResourceVersion
		}, 3*time.Second).Should(Equal(version))
		Expect(s.deletions.Load()).To(BeNumerically("==", 1))
	})
})
