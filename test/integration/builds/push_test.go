package builds

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kibaship/hook"
	"github.com/bergctf/berg-operator/internal/kibaship/naming"
	"github.com/bergctf/berg-operator/internal/kibaship/registry"
	"github.com/bergctf/berg-operator/internal/kit/ports"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/gitrepo"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/installed"
	"github.com/bergctf/berg-operator/test/lib/transport"
)

// receiverUser is the account of config/kibaship/pushes.
const receiverUser = "system:serviceaccount:" + installed.Namespace + ":kibaship-pushes"

// watched is an Application whose pushes are built, and its repository.
type watched struct {
	world
	*gitrepo.Repository
}

// newWatched has the operator ask a repository on this machine, with changed settings.
func newWatched(ctx context.Context, changes map[string]string, modify ...func(*kibashipv1.GitRepository)) watched {
	GinkgoHelper()
	DeferCleanup(registry.Exempt(netip.MustParsePrefix("127.0.0.0/8")))
	repository := gitrepo.New(GinkgoT())
	settings := map[string]string{"GIT_PROVIDER_URLS": "github.com=" + repository.URL}
	for name, value := range changes {
		settings[name] = value
	}
	inprocess.Restart(settings, nil)
	spec := git()
	spec.GitRepository.AutoBuild = &kibashipv1.AutoBuild{Enabled: true}
	for _, m := range modify {
		m(spec.GitRepository)
	}
	secrets := []string{registrySecret}
	if ref := spec.GitRepository.SecretRef; ref != nil && ref.Name != registrySecret {
		secrets = append(secrets, ref.Name)
	}
	return watched{newWorld(ctx, spec, secrets...), repository}
}

// deployment is the one of a branch.
func (w watched) deployment(branch string) *kibashipv1.Deployment {
	return &kibashipv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: naming.PushedBranch(w.app.Name, branch)}}
}

// builds waits until a Deployment builds a commit, and returns it.
func (w watched) builds(ctx context.Context, d *kibashipv1.Deployment, commit string) *kibashipv1.Deployment {
	GinkgoHelper()
	expect.Becomes(ctx, d, func(g Gomega) {
		g.Expect(d.Spec.GitRepository).NotTo(BeNil())
		g.Expect(d.Spec.GitRepository.CommitSHA).To(Equal(commit))
		g.Expect(d.Status.ObservedGeneration).To(Equal(d.Generation))
		g.Expect(d.Status.CurrentPipelineRun).NotTo(BeNil())
		g.Expect(d.Status.Phase).To(Equal(kibashipv1.DeploymentRunning), "%s", d.Status.Message)
	})
	return d
}

// shows waits until the Application says something of its builds.
func (w watched) shows(ctx context.Context, status metav1.ConditionStatus, reason, text string) {
	GinkgoHelper()
	expect.Becomes(ctx, w.app, func(g Gomega) {
		c := meta.FindStatusCondition(w.app.Status.Conditions, kibashipv1.ConditionAutoBuild)
		g.Expect(c).NotTo(BeNil())
		g.Expect(c.Status).To(Equal(status), "%s", c.Message)
		g.Expect(c.Reason).To(Equal(reason))
		g.Expect(c.Message).To(ContainSubstring(text))
		g.Expect(w.app.Status.Phase).To(Equal(kibashipv1.ApplicationReady), "what keeps pushes from building keeps no one from building by hand")
	})
}

var _ = Describe("A push", func() {
	poll := map[string]string{"GIT_POLL_INTERVAL": "1s"}

	It("starts a build, and ends the build of an older commit of its branch", func(ctx context.Context) {
		w := newWatched(ctx, poll)
		first := w.Git("rev-parse", "main")
		d := w.builds(ctx, w.deployment("main"), first)
		w.shows(ctx, metav1.ConditionTrue, kibashipv1.ReasonWatching, "")
		Expect(w.app.Status.AutoBuild.Refs).To(Equal([]kibashipv1.AutoBuildRef{{Ref: "refs/heads/main", CommitSHA: first, Deployment: d.Name}}))
		Expect(w.runs(ctx)).To(HaveLen(1))

		By("nothing new is pushed: nothing is written")
		asked, before := w.Asked(), []string{d.ResourceVersion, w.app.ResourceVersion}
		Eventually(w.Asked).WithTimeout(40 * time.Second).Should(BeNumerically(">", asked+1))
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(d), d)).To(Succeed())
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(w.app), w.app)).To(Succeed())
		Expect([]string{d.ResourceVersion, w.app.ResourceVersion}).To(Equal(before))

		By("three commits, of which the last one says that it is not built")
		w.Git("commit", "--quiet", "--allow-empty", "-m", "second")
		second := w.Commit("main", "third")
		w.builds(ctx, d, second)
		expect.Event(ctx, w.app, corev1.EventTypeNormal, kibashipv1.ReasonBuildReplaced)
		Expect(w.runs(ctx)).To(HaveLen(2), "no commit between the newest ones is built")
		skipped := w.Commit("main", "docs\n\n[skip ci]")
		expect.Becomes(ctx, w.app, func(g Gomega) {
			g.Expect(w.app.Status.AutoBuild.Refs).To(HaveLen(1))
			g.Expect(w.app.Status.AutoBuild.Refs[0].CommitSHA).To(Equal(skipped))
			g.Expect(w.app.Status.AutoBuild.Refs[0].Message).To(ContainSubstring("[skip ci]"))
		})
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(d), d)).To(Succeed())
		Expect(d.Spec.GitRepository.CommitSHA).To(Equal(second))

		By("its author goes back to the first commit, which stays until the next push")
		apiserver.Change(ctx, d, func() { d.Spec.GitRepository.CommitSHA = first })
		apiserver.Change(ctx, w.app, func() { metav1.SetMetaDataAnnotation(&w.app.ObjectMeta, kibashipv1.AnnotationPushed, "x") })
		asked = w.Asked()
		Eventually(w.Asked).WithTimeout(40 * time.Second).Should(BeNumerically(">", asked))
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(d), d)).To(Succeed())
		Expect(d.Spec.GitRepository.CommitSHA).To(Equal(first))
		w.builds(ctx, d, w.Commit("main", "fourth"))
	})

	It("is built where the rule says so: branches, the highest tag, and no pull request of a fork", func(ctx context.Context) {
		w := newWatched(ctx, poll, func(g *kibashipv1.GitRepository) {
			g.AutoBuild.Branches, g.AutoBuild.Tags = []string{"main", "feature/*"}, []string{"v*"}
		})
		login := w.Commit("feature/Login", "a branch")
		w.Commit("other", "another branch")
		w.Git("tag", "v1.9.0", "main")
		w.Git("tag", "-a", "v1.10.0", "-m", "a release", "feature/Login")
		w.Git("push", "--quiet", "origin", "v1.9.0", "v1.10.0", "other:refs/pull/1/head")
		w.builds(ctx, w.deployment("feature/Login"), login)
		tag := &kibashipv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: naming.PushedTag(w.app.Name)}}
		w.builds(ctx, tag, login)
		w.builds(ctx, w.deployment("main"), w.Git("rev-parse", "main"))
		var all kibashipv1.DeploymentList
		Expect(k8s.List(ctx, &all, client.InNamespace(w.namespace))).To(Succeed())
		Expect(all.Items).To(HaveLen(3))
	})

	It("says why it starts no build", func(ctx context.Context) {
		By("nothing asks")
		w := newWatched(ctx, nil)
		w.shows(ctx, metav1.ConditionFalse, kibashipv1.ReasonAutoBuildOff, "GIT_POLL_INTERVAL or GIT_WEBHOOK_URL")
		Expect(w.Asked()).To(BeZero())

		By("a Deployment of its name is of others")
		by := w.deployment("main")
		by.Spec.ApplicationRef.Name = w.app.Name
		by.Spec.GitRepository = &kibashipv1.DeploymentSource{CommitSHA: sha(1)}
		Expect(k8s.Create(ctx, by)).To(Succeed())
		inprocess.Restart(map[string]string{"GIT_PROVIDER_URLS": "github.com=" + w.URL, "GIT_POLL_INTERVAL": "1s"}, nil)
		expect.Becomes(ctx, w.app, func(g Gomega) {
			g.Expect(w.app.Status.AutoBuild.Refs).To(HaveLen(1))
			g.Expect(w.app.Status.AutoBuild.Refs[0].Message).To(ContainSubstring("was not created for pushes"))
		})
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(by), by)).To(Succeed())
		Expect(by.Spec.GitRepository.CommitSHA).To(Equal(sha(1)))

		By("no branch matches")
		apiserver.Change(ctx, w.app, func() { w.app.Spec.GitRepository.AutoBuild.Branches = []string{"none"} })
		w.shows(ctx, metav1.ConditionFalse, kibashipv1.ReasonNothingMatches, "spec.gitRepository.autoBuild")

		By("the repository does not exist")
		apiserver.Change(ctx, w.app, func() { w.app.Spec.GitRepository.Repository = "team/none" })
		w.shows(ctx, metav1.ConditionFalse, kibashipv1.ReasonRepositoryNotRead, "404")

		By("it is switched off")
		apiserver.Change(ctx, w.app, func() { w.app.Spec.GitRepository.AutoBuild.Enabled = false })
		expect.Becomes(ctx, w.app, func(g Gomega) {
			g.Expect(w.app.Status.AutoBuild).To(BeNil())
			g.Expect(meta.FindStatusCondition(w.app.Status.Conditions, kibashipv1.ConditionAutoBuild)).To(BeNil())
		})
		bad := w.app.DeepCopy()
		bad.Spec.GitRepository.AutoBuild.Branches = []string{"a b"}
		Expect(k8s.Update(ctx, bad)).To(MatchError(ContainSubstring("branches")))
	})

	It("to a private repository is built with the token of its own Application", func(ctx context.Context) {
		w := newWatched(ctx, poll, func(g *kibashipv1.GitRepository) {
			g.PublicAccess, g.SecretRef = false, &kibashipv1.LocalReference{Name: registrySecret} // its key token is x
		})
		w.Token = "x"
		w.builds(ctx, w.deployment("main"), w.Git("rev-parse", "main"))
		w.Token = "another"
		w.shows(ctx, metav1.ConditionFalse, kibashipv1.ReasonRepositoryNotRead, "wants another login")
	})

	It("is found without a right that a Project without pushes does not need", func(ctx context.Context) {
		const token = "git-token"
		w := newWatched(ctx, nil, func(g *kibashipv1.GitRepository) {
			g.PublicAccess, g.SecretRef = false, &kibashipv1.LocalReference{Name: token}
		})
		w.Token = "x" // what the Secret of newWorld has
		var reads atomic.Int32
		count := transport.Showing(func(r *http.Request) {
			if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/namespaces/"+w.namespace+"/secrets/"+token) {
				reads.Add(1)
			}
		})
		settings := map[string]string{"GIT_PROVIDER_URLS": "github.com=" + w.URL}

		By("pushes start nothing: the token is not read")
		inprocess.Restart(settings, count)
		apiserver.Change(ctx, w.app, func() { w.app.Spec.GitRepository.AutoBuild.Branches = []string{"main"} })
		expect.Becomes(ctx, w.app, func(g Gomega) { g.Expect(w.app.Status.ObservedGeneration).To(Equal(w.app.Generation)) })
		w.shows(ctx, metav1.ConditionFalse, kibashipv1.ReasonAutoBuildOff, "GIT_POLL_INTERVAL")
		Expect(reads.Load()).To(BeZero())

		By("the operator has the rights that it grants the account of a Project, and no other in its namespace")
		granted := &rbacv1.Role{}
		Expect(k8s.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: naming.AdminRole(w.project)}, granted)).To(Succeed())
		Expect(granted.Rules).NotTo(ContainElement(HaveField("Resources", ContainElement(rbacv1.ResourceAll))), "rights that it could not do without")
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: kibashipv1.ProjectAdmin}}
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(role), role)).To(Succeed())
		all := role.Rules
		limit := func(ctx context.Context, rules []rbacv1.PolicyRule) {
			GinkgoHelper()
			apiserver.Change(ctx, role, func() { role.Rules = rules })
		}
		DeferCleanup(func(ctx context.Context) { limit(ctx, all) })
		limit(ctx, granted.Rules)
		settings["GIT_POLL_INTERVAL"] = "1s"
		inprocess.Restart(settings, count)
		d := w.builds(ctx, w.deployment("main"), w.Git("rev-parse", "main"))
		Expect(reads.Load()).To(BeNumerically(">", 0))
		w.builds(ctx, d, w.Commit("main", "second"))

		By("without the right to read Secrets it finds nothing, and says so")
		var fewer []rbacv1.PolicyRule
		for _, rule := range granted.Rules {
			rule.Resources = slices.DeleteFunc(slices.Clone(rule.Resources), func(resource string) bool { return resource == "secrets" })
			fewer = append(fewer, rule)
		}
		limit(ctx, fewer)
		w.Token = "another" // the token is read again
		w.shows(ctx, metav1.ConditionFalse, kibashipv1.ReasonRepositoryNotRead, "forbidden")
	})

	It("is announced by a webhook, which alone builds nothing", func(ctx context.Context) {
		Expect(installed.Folder(ctx, k8s, "config/kibaship/pushes", "kubectl")).To(Succeed())
		By("the key of the receiver is there before an Application needs it")
		key := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: installed.Namespace, Name: hook.KeySecret}}
		Expect(client.IgnoreNotFound(k8s.Delete(ctx, key))).To(Succeed())
		inprocess.Restart(map[string]string{"GIT_WEBHOOK_URL": "https://pushes.example.org/"}, nil)
		Eventually(func() error { return k8s.Get(ctx, client.ObjectKeyFromObject(key), key) }).Should(Succeed())

		w := newWatched(ctx, map[string]string{"GIT_WEBHOOK_URL": "https://pushes.example.org/"})
		d := w.builds(ctx, w.deployment("main"), w.Git("rev-parse", "main"))
		w.shows(ctx, metav1.ConditionTrue, kibashipv1.ReasonWatching, "")
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: w.app.Status.AutoBuild.WebhookSecret}}
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(secret), secret)).To(Succeed())
		Expect(string(secret.Data["url"])).To(Equal(w.app.Status.AutoBuild.WebhookURL))
		path := strings.TrimPrefix(w.app.Status.AutoBuild.WebhookURL, "https://pushes.example.org")
		receiver := startReceiver(ctx)
		send := func(body, key string) (status int, took time.Duration) {
			GinkgoHelper()
			return sendSigned(ctx, receiver+path, key, body)
		}
		right := string(secret.Data["secret"])

		By("a right one")
		newest := w.Commit("main", "second")
		status, _ := send(`{"ref":"refs/heads/main"}`, right)
		Expect(status).To(Equal(http.StatusAccepted))
		w.builds(ctx, d, newest)

		By("100 forged and 100 repeated ones, and right ones among them")
		before := w.runs(ctx)
		attacks, results := make(chan int, 200), make(chan int, 200)
		for n := range cap(attacks) {
			attacks <- n
		}
		close(attacks)
		for range 4 {
			go func() {
				defer GinkgoRecover()
				for n := range attacks {
					key := right
					if n%2 == 0 {
						key = "forged"
					}
					status, _ := send(`{"ref":"refs/heads/main"}`, key)
					results <- status
				}
			}()
		}
		for n := range 16 { // fewer than the burst of an Application; make kibaship-pushes measures how long they take
			status, _ := send(fmt.Sprintf(`{"right":%d}`, n), right)
			Expect(status).To(Equal(http.StatusAccepted))
		}
		for range cap(results) {
			Expect(<-results).To(BeElementOf(http.StatusAccepted, http.StatusUnauthorized, http.StatusTooManyRequests))
		}
		Consistently(func() []string { return w.runs(ctx) }).WithTimeout(6 * time.Second).Should(Equal(before))

		By("operator and receiver start again, and the first webhook is repeated")
		inprocess.Restart(map[string]string{"GIT_PROVIDER_URLS": "github.com=" + w.URL, "GIT_WEBHOOK_URL": "https://pushes.example.org/"}, nil)
		receiver = startReceiver(ctx)
		status, _ = send(`{"ref":"refs/heads/main"}`, right)
		Expect(status).To(Equal(http.StatusAccepted))
		Consistently(func() []string { return w.runs(ctx) }).WithTimeout(4 * time.Second).Should(Equal(before))

		By("the account of the receiver may write no more")
		as := apiserver.As(receiverUser)
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(w.app), w.app)).To(Succeed())
		for name, patch := range map[string]string{
			"spec":       `{"spec":{"gitRepository":{"repository":"team/other"}}}`,
			"label":      `{"metadata":{"labels":{"x":"y"}}}`,
			"annotation": `{"metadata":{"annotations":{"x":"y"}}}`,
			"finalizer":  `{"metadata":{"finalizers":null}}`,
		} {
			Expect(as.Patch(ctx, w.app.DeepCopy(), apiserver.RawPatch(patch))).To(MatchError(ContainSubstring("kibaship-pushes may write")), name)
		}
		Expect(as.Get(ctx, client.ObjectKeyFromObject(w.app), w.app.DeepCopy())).To(MatchError(ContainSubstring("forbidden")))
		Expect(as.Get(ctx, client.ObjectKeyFromObject(secret), &corev1.Secret{})).To(MatchError(ContainSubstring("forbidden")))

		By("the Application is made again: the old webhook is no longer one")
		Expect(k8s.Delete(ctx, w.app)).To(Succeed())
		expect.Gone(ctx, w.app)
		status, _ = send(`{"again":1}`, right)
		Expect(status).To(Equal(http.StatusGone))
	})

	It("is found, and its state is sent, in time while another provider hangs", func(ctx context.Context) {
		states := func(g *kibashipv1.GitRepository) {
			g.PublicAccess, g.SecretRef = false, &kibashipv1.LocalReference{Name: registrySecret}
			g.AutoBuild = &kibashipv1.AutoBuild{Enabled: true, CommitStatus: true}
		}
		w := newWatched(ctx, poll, states)
		silent := gitrepo.New(GinkgoT())
		By("it takes no states")
		speak := silent.Silence("/api/")
		inprocess.Restart(map[string]string{
			"GIT_PROVIDER_URLS": "github.com=" + w.URL + ",gitlab.com=" + silent.URL, "GIT_POLL_INTERVAL": "1s", "GIT_COMMIT_STATUS": "true",
		}, nil)
		for n := range 19 {
			spec := git()
			spec.ProjectRef.Name = w.project
			states(spec.GitRepository)
			spec.GitRepository.Provider = kibashipv1.GitLab
			Expect(k8s.Create(ctx, &kibashipv1.Application{
				ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: fmt.Sprintf("project-%s-app-silent-%d-kibaship-com", w.project, n)}, Spec: spec,
			})).To(Succeed())
		}
		Eventually(silent.States).WithTimeout(20 * time.Second).Should(HaveLen(8))
		d := w.builds(ctx, w.deployment("main"), w.Git("rev-parse", "main"))
		inTime := func(message string) {
			GinkgoHelper()
			commit := w.Commit("main", message)
			begun := time.Now()
			w.builds(ctx, d, commit)
			Eventually(w.States).WithTimeout(20 * time.Second).Should(ContainElement(ContainSubstring("/statuses/" + commit + " ")))
			Expect(time.Since(begun)).To(BeNumerically("<", 15*time.Second))
		}
		inTime("while another one takes no states")

		By("it answers nothing")
		silent.Silence("/")
		speak()
		before := silent.Asked()
		Eventually(silent.Asked).WithTimeout(20 * time.Second).Should(BeNumerically(">=", before+8))
		inTime("while another one answers nothing")
	})

	It("is not pending at the provider when its Deployment or Application is deleted", func(ctx context.Context) {
		w := newWatched(ctx, map[string]string{"GIT_POLL_INTERVAL": "1s", "GIT_COMMIT_STATUS": "true"}, func(g *kibashipv1.GitRepository) {
			g.PublicAccess, g.SecretRef = false, &kibashipv1.LocalReference{Name: registrySecret}
			g.AutoBuild = &kibashipv1.AutoBuild{Enabled: true, CommitStatus: true}
		})
		for _, o := range []client.Object{w.deployment("main"), w.app} {
			commit := w.Commit("main", "another")
			d := w.builds(ctx, w.deployment("main"), commit)
			shown := func(state string) {
				GinkgoHelper()
				Eventually(w.States).WithTimeout(20 * time.Second).Should(ContainElement(And(ContainSubstring("/statuses/"+commit+" "), ContainSubstring(state))))
			}
			shown("pending")
			Expect(k8s.Delete(ctx, o)).To(Succeed())
			shown("error")
			if o == client.Object(w.app) {
				expect.Gone(ctx, w.app)
			}
			Eventually(func(g Gomega) { // while the Application is there, its next question creates another one for the branch
				left := d.DeepCopy()
				if err := k8s.Get(ctx, client.ObjectKeyFromObject(d), left); err == nil {
					g.Expect(left.UID).NotTo(Equal(d.UID))
				} else {
					g.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
				}
			}).WithTimeout(10 * time.Second).Should(Succeed())
		}
	})

	It("wins over earlier ones that wait for a slot", func(ctx context.Context) {
		w := newWatched(ctx, map[string]string{"GIT_POLL_INTERVAL": "1s", "BUILD_CONCURRENCY": "1"}, func(g *kibashipv1.GitRepository) {
			g.AutoBuild.Branches = []string{"main", "next"}
		})
		w.builds(ctx, w.deployment("main"), w.Git("rev-parse", "main"))
		main := w.running(ctx, w.deployment("main"))
		next := w.deployment("next")
		var newest string
		for _, message := range []string{"first", "second", "third"} {
			newest = w.Commit("next", message)
			expect.Becomes(ctx, next, func(g Gomega) {
				g.Expect(next.Spec.GitRepository).NotTo(BeNil())
				g.Expect(next.Spec.GitRepository.CommitSHA).To(Equal(newest))
				g.Expect(next.Status.ObservedGeneration).To(Equal(next.Generation))
				c := meta.FindStatusCondition(next.Status.Conditions, kibashipv1.ConditionSucceeded)
				g.Expect(c).NotTo(BeNil())
				g.Expect(c.Reason).To(Equal(kibashipv1.ReasonQueued))
			})
		}
		Expect(w.runs(ctx)).To(HaveLen(1))
		w.ends(ctx, main, "False", "Failed", map[string]any{})
		w.builds(ctx, next, newest)
		Expect(w.runs(ctx)).To(HaveLen(2), "no commit before the newest one is built")
	})

	It("is built for an Application and a Deployment that an earlier operator made", func(ctx context.Context) {
		DeferCleanup(registry.Exempt(netip.MustParsePrefix("127.0.0.0/8")))
		repository := gitrepo.New(GinkgoT())
		name := "p" + uuid.NewString()[:8]
		w := watched{world{project: name, namespace: project(ctx, name)}, repository}
		w.secret(ctx, registrySecret)
		inprocess.Pause()
		w.app = &kibashipv1.Application{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "project-" + name + "-app-web-kibaship-com", Finalizers: []string{kibashipv1.ApplicationFinalizer}},
			Spec:       git(),
		}
		w.app.Spec.ProjectRef.Name, w.app.Spec.GitRepository.Branch, w.app.Spec.GitRepository.RootDirectory = name, "", "./"
		by := &kibashipv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "project-" + name + "-app-web-deployment-main-kibaship-com"},
			Spec:       kibashipv1.DeploymentSpec{ApplicationRef: kibashipv1.LocalReference{Name: w.app.Name}},
		}
		Expect(k8s.Create(ctx, w.app)).To(Succeed())
		Expect(k8s.Create(ctx, by)).To(Succeed())
		for o, status := range map[client.Object]string{
			w.app: `{"status":{"phase":"Ready","message":"Application is ready","observedGeneration":1,
				"conditions":[{"type":"Ready","status":"True","reason":"ApplicationReady","message":"Application is ready","lastTransitionTime":"2025-09-12T10:00:00Z"}]}}`,
			by: `{"status":{"phase":"Waiting"}}`,
		} {
			Expect(k8s.Status().Patch(ctx, o, apiserver.RawPatch(status))).To(Succeed())
		}
		inprocess.Restart(map[string]string{"GIT_PROVIDER_URLS": "github.com=" + w.URL, "GIT_POLL_INTERVAL": "1s"}, nil)
		ready(ctx, w.app)
		apiserver.Change(ctx, w.app, func() { w.app.Spec.GitRepository.AutoBuild = &kibashipv1.AutoBuild{Enabled: true} })
		d := w.builds(ctx, w.deployment("main"), w.Git("rev-parse", "main"))
		w.builds(ctx, d, w.Commit("main", "second"))
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(by), by)).To(Succeed())
		Expect(by.Spec.GitRepository).To(BeNil(), "a Deployment that its author made is left alone")
	})
})

// startReceiver runs the receiver of webhooks in this process, as its account, until the spec ends; and returns its URL.
func startReceiver(ctx context.Context) string {
	GinkgoHelper()
	key := &corev1.Secret{}
	Expect(k8s.Get(ctx, client.ObjectKey{Namespace: installed.Namespace, Name: hook.KeySecret}, key)).To(Succeed())
	file := filepath.Join(GinkgoT().TempDir(), "key")
	Expect(os.WriteFile(file, key.Data[hook.KeyName], 0o600)).To(Succeed())
	rc := rest.CopyConfig(apiserver.Config)
	rc.Impersonate = rest.ImpersonationConfig{UserName: receiverUser}
	writes, err := dynamic.NewForConfig(rc)
	Expect(err).NotTo(HaveOccurred())
	var log bytes.Buffer
	DeferCleanup(func() { Expect(log.String()).NotTo(ContainSubstring(string(key.Data[hook.KeyName]))) })
	logger := slog.New(slog.NewTextHandler(&log, nil))
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	url := "http://" + listener.Addr().String()
	server, listener := ports.NewServer(listener, ports.Options{
		Handler: &hook.Receiver{KeyFile: file, Client: writes, Clock: clock.RealClock{}, Log: logger}, Log: logger,
	})
	go func() { _ = server.Serve(listener) }()
	DeferCleanup(func() { _ = server.Close() })
	return url
}

// sendSigned sends a webhook as GitHub does, signed with a secret, and returns the status of the answer and the time until it.
func sendSigned(ctx context.Context, address, secret, body string) (status int, took time.Duration) {
	GinkgoHelper()
	mac := hmac.New(sha256.New, []byte(secret))
	_, _ = io.WriteString(mac, body)
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(body))
	Expect(err).NotTo(HaveOccurred())
	q.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	q.Header.Set("X-GitHub-Event", "push")
	begun := time.Now()
	answer, err := http.DefaultClient.Do(q)
	Expect(err).NotTo(HaveOccurred())
	_ = answer.Body.Close()
	return answer.StatusCode, time.Since(begun)
}
