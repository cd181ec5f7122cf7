package builds

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kibaship/hook"
	"github.com/bergctf/berg-operator/internal/kibaship/naming"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bulk"
	"github.com/bergctf/berg-operator/test/lib/gitrepo"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/installed"
	"github.com/bergctf/berg-operator/test/measure/machine"
)

// create adds Applications of a provider to a Project, and waits until the operator knows their repositories.
func (w watched) create(ctx context.Context, provider kibashipv1.GitProvider, n int) []*kibashipv1.Application {
	GinkgoHelper()
	all := make([]*kibashipv1.Application, n)
	bulk.Each(n, func(i int) {
		spec := git()
		spec.ProjectRef.Name, spec.GitRepository.Provider = w.project, provider
		spec.GitRepository.AutoBuild = &kibashipv1.AutoBuild{Enabled: true}
		all[i] = &kibashipv1.Application{ObjectMeta: metav1.ObjectMeta{
			Namespace: w.namespace, Name: fmt.Sprintf("project-%s-app-%s-%d-kibaship-com", w.project, strings.TrimSuffix(string(provider), ".com"), i),
		}, Spec: spec}
		Expect(k8s.Create(ctx, all[i])).To(Succeed())
	})
	Eventually(func(g Gomega) {
		var list kibashipv1.ApplicationList
		g.Expect(k8s.List(ctx, &list, client.InNamespace(w.namespace))).To(Succeed())
		for i := range list.Items {
			g.Expect(list.Items[i].Status.AutoBuild).NotTo(BeNil(), list.Items[i].Name)
			g.Expect(list.Items[i].Status.AutoBuild.Refs).NotTo(BeEmpty(), list.Items[i].Name)
		}
	}).WithTimeout(10 * time.Minute).WithPolling(time.Second).Should(Succeed())
	return all
}

// built waits until the pushes of all Applications have a commit.
func (w watched) built(ctx context.Context, all []*kibashipv1.Application, commit string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		for _, a := range all {
			d := &kibashipv1.Deployment{}
			g.Expect(k8s.Get(ctx, client.ObjectKey{Namespace: a.Namespace, Name: naming.PushedBranch(a.Name, "main")}, d)).To(Succeed())
			g.Expect(d.Spec.GitRepository.CommitSHA).To(Equal(commit))
		}
	}).WithTimeout(time.Minute).WithPolling(10 * time.Millisecond).Should(Succeed())
}

// percentile returns the time within which so many percent are.
func percentile(all []time.Duration, percent int) time.Duration {
	return slices.Sorted(slices.Values(all))[(len(all)-1)*percent/100]
}

var _ = Describe("What pushes cost", func() {
	BeforeEach(func() {
		if os.Getenv("PUSH_TARGETS") != "1" {
			Skip("make kibaship-pushes measures this: it needs a machine without other load")
		}
	})

	It("right webhooks among forged and repeated ones", func(ctx context.Context) {
		const rounds, each = 20, 10 // 200 right ones without others, and 200 among 200
		Expect(installed.Folder(ctx, k8s, "config/kibaship/pushes", "kubectl")).To(Succeed())
		w := newWatched(ctx, map[string]string{"GIT_WEBHOOK_URL": "https://pushes.example.org/", "BUILD_CONCURRENCY": "0"})
		apps := w.create(ctx, kibashipv1.GitHub, 2*rounds)
		w.built(ctx, apps, w.Git("rev-parse", "main"))
		key := &corev1.Secret{}
		Expect(k8s.Get(ctx, client.ObjectKey{Namespace: installed.Namespace, Name: hook.KeySecret}, key)).To(Succeed())
		receiver := startReceiver(ctx)
		send := func(a *kibashipv1.Application, secret, body string) (status int, took time.Duration) {
			GinkgoHelper()
			path := hook.NewPath(a.Namespace, a.Name, a.UID)
			if secret == "" {
				secret = hook.Derive(key.Data[hook.KeyName], path).Text()
			}
			return sendSigned(ctx, receiver+path, secret, body)
		}
		rights := func(a *kibashipv1.Application) (all []time.Duration) {
			GinkgoHelper()
			for n := range each {
				status, took := send(a, "", fmt.Sprintf(`{"push":%d}`, n))
				Expect(status).To(Equal(http.StatusAccepted))
				all = append(all, took)
			}
			return all
		}
		Eventually(func() []string { return w.runs(ctx) }).Should(HaveLen(len(apps) + 1)) // with that of w.app
		runs := w.runs(ctx)
		rights(w.app) // connections are made
		var quiet, loud []time.Duration
		for round := range rounds {
			quiet = append(quiet, rights(apps[2*round])...)
			var attack sync.WaitGroup
			for n := range each {
				attack.Go(func() {
					defer GinkgoRecover()
					secret := ""
					if n%2 == 0 {
						secret = "forged"
					}
					status, _ := send(w.app, secret, `{"push":0}`)
					Expect(status).To(BeElementOf(http.StatusAccepted, http.StatusUnauthorized, http.StatusTooManyRequests))
				})
			}
			loud = append(loud, rights(apps[2*round+1])...)
			attack.Wait()
		}
		Consistently(func() []string { return w.runs(ctx) }).WithTimeout(12*time.Second).Should(Equal(runs), "they build nothing")
		before, among := percentile(quiet, 99), percentile(loud, 99)
		AddReportEntry("p99 of a right webhook", fmt.Sprintf("%s, among 200 forged and repeated ones %s, target at most twice as long", before, among))
		Expect(among).To(BeNumerically("<=", 2*before))
	})

	It("20 Applications, of which half have a provider that hangs", func(ctx context.Context) {
		const rounds = 10
		w := newWatched(ctx, nil)
		other := gitrepo.New(GinkgoT())
		inprocess.Restart(map[string]string{
			"GIT_PROVIDER_URLS": "github.com=" + w.URL + ",gitlab.com=" + other.URL, "GIT_WEBHOOK_URL": "https://pushes.example.org", "BUILD_CONCURRENCY": "0",
		}, nil)
		ours, theirs := w.create(ctx, kibashipv1.GitHub, 10), w.create(ctx, kibashipv1.GitLab, 10)
		announce := func(all []*kibashipv1.Application, value string) {
			GinkgoHelper()
			for _, a := range all {
				apiserver.Change(ctx, a, func() { metav1.SetMetaDataAnnotation(&a.ObjectMeta, kibashipv1.AnnotationPushed, value) })
			}
		}
		measure := func() (all []time.Duration) {
			GinkgoHelper()
			for n := range rounds {
				commit := w.Commit("main", fmt.Sprint("push ", n))
				begun := time.Now()
				announce(ours, commit)
				w.built(ctx, ours, commit)
				all = append(all, time.Since(begun))
			}
			return all
		}
		quiet := measure()
		other.Silence("/")
		asked := other.Asked()
		announce(theirs, "while it hangs")
		Eventually(other.Asked).WithTimeout(20 * time.Second).Should(BeNumerically(">=", asked+8))
		loud := measure()
		before, among := percentile(quiet, 50), percentile(loud, 50)
		AddReportEntry("pushes to ten Applications", fmt.Sprintf("%s, while the provider of ten others hangs %s, target at most 1.1 times as long", before, among))
		Expect(among).To(BeNumerically("<=", before*11/10+20*time.Millisecond))
	})

	It("Applications that are asked about every minute", func(ctx context.Context) {
		const duration, share = 3 * time.Minute, 0.05
		n := bulk.Number("PUSH_APPLICATIONS", 1000)
		w := newWatched(ctx, nil)
		w.Commit("main", "nothing to build [skip ci]")
		server := httptest.NewServer(remember(w.URL))
		DeferCleanup(server.Close)
		inprocess.Restart(map[string]string{"GIT_PROVIDER_URLS": "github.com=" + server.URL, "GIT_POLL_INTERVAL": "1m"}, nil)
		w.create(ctx, kibashipv1.GitHub, n-1)
		Expect(w.runs(ctx)).To(BeEmpty())
		questions := func() float64 { return inprocess.Metric("kibaship_repository_questions_total", "result", "answered") }
		asked, used := questions(), machine.CPU(os.Getpid())
		<-time.After(duration)
		asked, used = questions()-asked, (machine.CPU(os.Getpid())-used)/duration.Seconds()
		AddReportEntry("questions", fmt.Sprintf("%d Applications, %.0f questions in %s took %.1f %% of a core, the git server in this process included; target at most %.0f %%",
			n, asked, duration, 100*used, 100*share))
		Expect(asked).To(BeNumerically(">=", float64(n)*duration.Minutes()*0.8))
		Expect(used).To(BeNumerically("<=", share))
	})
})

// remember answers each question of git as a server did when it was asked first, so that no process of git takes part in a measurement.
func remember(server string) http.Handler {
	var mu sync.Mutex
	known := map[string][]byte{}
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		body, err := io.ReadAll(q.Body)
		if known[string(body)] == nil && err == nil {
			var asked *http.Request
			if asked, err = http.NewRequestWithContext(q.Context(), q.Method, server+q.URL.Path, strings.NewReader(string(body))); err == nil {
				asked.Header = q.Header.Clone()
				var answer *http.Response
				if answer, err = http.DefaultClient.Do(asked); err == nil {
					known[string(body)], err = io.ReadAll(answer.Body)
					_ = answer.Body.Close()
				}
			}
		}
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		_, _ = w.Write(known[string(body)])
	})
}
