package commitstatus

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kibaship/poll"
	"github.com/bergctf/berg-operator/internal/kibaship/registry"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// Requests are those that the providers document.
func TestRequestsOfEachProvider(t *testing.T) {
	for name, test := range map[string]struct {
		provider kibashipv1.GitProvider
		base     string
		public   bool
		want     []string
	}{
		// https://docs.github.com/en/rest/commits/statuses
		"GitHub": {kibashipv1.GitHub, "https://github.com", true, []string{
			`https://api.github.com/repos/team/web/statuses/abc Authorization: token t {"context":"kibaship/main","state":"success"}`,
		}},
		// https://docs.github.com/en/enterprise-server/rest, https://forgejo.org/docs/latest/user/api-usage/
		"a forge of one's own": {kibashipv1.GitHub, "https://git.example.org", false, []string{
			`https://git.example.org/api/v3/repos/team/web/statuses/abc Authorization: token t {"context":"kibaship/main","state":"success"}`,
			`https://git.example.org/api/v1/repos/team/web/statuses/abc Authorization: token t {"context":"kibaship/main","state":"success"}`,
		}},
		// https://docs.gitlab.com/api/commits/#set-commit-pipeline-status
		"GitLab": {kibashipv1.GitLab, "https://gitlab.com", true, []string{
			`https://gitlab.com/api/v4/projects/team%2Fweb/statuses/abc Private-Token: t {"name":"kibaship/main","state":"success"}`,
		}},
		// https://developer.atlassian.com/cloud/bitbucket/rest/api-group-commit-statuses/
		"Bitbucket": {kibashipv1.Bitbucket, "https://bitbucket.org", true, []string{
			`https://api.bitbucket.org/2.0/repositories/team/web/commit/abc/statuses/build Authorization: Bearer t {"key":"kibaship/main","state":"SUCCESSFUL","url":"https://bitbucket.org/team/web/commits/abc"}`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			requests, err := commitState{
				provider: test.provider, base: test.base, public: test.public, repository: "team/web", commit: "abc", build: "kibaship/main", state: success, token: "t",
			}.requests(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, q := range requests {
				body, _ := io.ReadAll(q.Body)
				header := "Authorization"
				if q.Header.Get(header) == "" {
					header = "Private-Token"
				}
				got = append(got, fmt.Sprintf("%s %s: %s %s", q.URL, header, q.Header.Get(header), body))
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("%q\nwant\n%q", got, test.want)
			}
		})
	}
}

const namespace = "project-p-ns-kibaship-com"

// world is a Reconciler with a Deployment, and a provider that answers as it is told.
type world struct {
	*Reconciler
	client   client.Client
	events   *events.FakeRecorder
	d        *kibashipv1.Deployment
	received []string
	status   int
	after    string // Retry-After
}

func newWorld(t *testing.T) *world {
	t.Helper()
	t.Cleanup(registry.Exempt(netip.MustParsePrefix("127.0.0.0/8")))
	w := &world{status: http.StatusCreated, events: events.NewFakeRecorder(10)}
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		if !strings.HasPrefix(q.URL.Path, "/api/v3/") { // as Gitea
			w.received = append(w.received, q.URL.Path+" "+string(body))
			rw.Header().Set("Retry-After", w.after)
			rw.WriteHeader(w.status)
			return
		}
		rw.WriteHeader(http.StatusNotFound)
	}))
	t.Cleanup(server.Close)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{kibashipv1.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	app := &kibashipv1.Application{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "project-p-app-web-kibaship-com", UID: "u"},
		Spec: kibashipv1.ApplicationSpec{Type: kibashipv1.TypeGitRepository, GitRepository: &kibashipv1.GitRepository{
			Provider: kibashipv1.GitHub, Repository: "team/web", SecretRef: &kibashipv1.LocalReference{Name: "git"},
			AutoBuild: &kibashipv1.AutoBuild{Enabled: true, CommitStatus: true},
		}},
	}
	w.d = &kibashipv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "project-p-app-web-deployment-push-main-kibaship-com", Generation: 1,
			Annotations:     map[string]string{kibashipv1.AnnotationRef: "refs/heads/main"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(app, kibashipv1.GroupVersion.WithKind("Application"))},
		},
		Spec: kibashipv1.DeploymentSpec{
			ApplicationRef: kibashipv1.LocalReference{Name: app.Name}, GitRepository: &kibashipv1.DeploymentSource{CommitSHA: "aaa"},
		},
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "git"}, Data: map[string][]byte{"token": []byte("t0ken")}}
	w.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(app, w.d, secret).WithStatusSubresource(w.d).Build()
	builds := config.Builds{Providers: map[string]string{"github.com": server.URL}}
	w.Reconciler = &Reconciler{
		Access: reconcile.Access{Client: w.client, Events: w.events}, Config: config.KibaShip{Builds: builds},
		Providers: &poll.Providers{Live: w.client, Config: builds}, Provider: kibashipv1.GitHub,
	}
	return w
}

// settle reconciles until nothing is sent any more, and returns what was sent: the commits and their states.
func (w *world) settle(t *testing.T) (sent []string) {
	t.Helper()
	w.received = nil
	for n := -1; n != len(w.received); {
		n = len(w.received)
		if _, err := w.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.d)}); err != nil {
			if strings.Contains(err.Error(), "t0ken") || !errors.Is(err, errNotSent) {
				t.Errorf("the error says %v", err)
			}
			return []string{"error"}
		}
	}
	for _, r := range w.received {
		path, body, _ := strings.Cut(r, " ")
		for _, word := range []string{"pending", "success", "failure", "error"} {
			if strings.Contains(body, `"`+word+`"`) {
				sent = append(sent, path[strings.LastIndexByte(path, '/')+1:]+" "+word)
			}
		}
	}
	return sent
}

// change writes a Deployment: its commit, and how its build goes.
func (w *world) change(t *testing.T, commit string, status metav1.ConditionStatus, reason string) {
	t.Helper()
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(w.d), w.d); err != nil {
		t.Fatal(err)
	}
	w.d.Spec.GitRepository.CommitSHA = commit
	if err := w.client.Update(t.Context(), w.d); err != nil {
		t.Fatal(err)
	}
	w.d.Status.Conditions = []metav1.Condition{{Type: kibashipv1.ConditionSucceeded, Status: status, Reason: reason, ObservedGeneration: w.d.Generation}}
	if err := w.client.Status().Update(t.Context(), w.d); err != nil {
		t.Fatal(err)
	}
}

func TestStatesAreSentOnce(t *testing.T) {
	w := newWorld(t)
	for _, step := range []struct {
		commit string
		status metav1.ConditionStatus
		reason string
		want   []string
	}{
		{"aaa", metav1.ConditionUnknown, kibashipv1.ReasonQueued, []string{"aaa pending"}},
		{"aaa", metav1.ConditionUnknown, kibashipv1.ReasonRunning, nil},
		{"bbb", metav1.ConditionUnknown, kibashipv1.ReasonRunning, []string{"aaa error", "bbb pending"}},
		{"bbb", metav1.ConditionFalse, kibashipv1.ReasonSecretNotFound, nil},
		{"bbb", metav1.ConditionTrue, kibashipv1.ReasonSucceeded, []string{"bbb success"}},
		{"ccc", metav1.ConditionFalse, kibashipv1.ReasonRunFailed, []string{"ccc failure"}},
		{"ccc", metav1.ConditionFalse, kibashipv1.ReasonRunFailed, nil},
	} {
		w.change(t, step.commit, step.status, step.reason)
		if got := w.settle(t); !slices.Equal(got, step.want) {
			t.Errorf("%s %s: %q, want %q", step.commit, step.reason, got, step.want)
		}
	}
}

func TestARefusalIsReportedAndAFailureIsRepeated(t *testing.T) {
	w := newWorld(t)
	w.status = http.StatusServiceUnavailable
	if got := w.settle(t); !slices.Equal(got, []string{"error"}) {
		t.Errorf("a provider that fails: %q", got)
	}
	w.status = http.StatusForbidden
	if got := w.settle(t); !slices.Equal(got, []string{"aaa pending"}) {
		t.Errorf("a provider that refuses: %q", got)
	}
	if event := <-w.events.Events; !strings.Contains(event, kibashipv1.ReasonCommitStatusRefused) || !strings.Contains(event, "403") || strings.Contains(event, "t0ken") {
		t.Errorf("the event says %s", event)
	}
	if got := w.settle(t); got != nil {
		t.Errorf("a refused state was sent again: %q", got)
	}
}

// A build that the deletion of its Deployment ends does not stay pending at the provider. The deletion waits for that, at most for a time.
func TestTheLastStateIsSentWhenADeploymentIsDeleted(t *testing.T) {
	for name, test := range map[string]struct {
		status  metav1.ConditionStatus
		reason  string
		want    []string
		refuses int
		noToken bool
	}{
		"while it builds":            {status: metav1.ConditionUnknown, reason: kibashipv1.ReasonRunning, want: []string{"aaa error"}},
		"when it was built":          {status: metav1.ConditionTrue, reason: kibashipv1.ReasonSucceeded, want: []string{"aaa success"}},
		"with its token":             {status: metav1.ConditionUnknown, reason: kibashipv1.ReasonRunning, noToken: true},
		"at a provider that refuses": {status: metav1.ConditionUnknown, reason: kibashipv1.ReasonRunning, want: []string{"aaa error"}, refuses: http.StatusNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.change(t, "aaa", metav1.ConditionUnknown, kibashipv1.ReasonQueued)
			w.settle(t)
			w.change(t, "aaa", test.status, test.reason)
			w.d.Finalizers = []string{kibashipv1.DeploymentFinalizer}
			err := w.client.Update(t.Context(), w.d)
			if test.noToken {
				err = errors.Join(err, w.client.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "git"}}))
			}
			if err = errors.Join(err, w.client.Delete(t.Context(), w.d), w.client.Get(t.Context(), client.ObjectKeyFromObject(w.d), w.d)); err != nil {
				t.Fatal(err)
			}
			w.d.Generation++ // as the API server does
			if err := w.client.Update(t.Context(), w.d); err != nil {
				t.Fatal(err)
			}
			a := &kibashipv1.Application{}
			if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "project-p-app-web-kibaship-com"}, a); err != nil {
				t.Fatal(err)
			}
			if now := w.d.DeletionTimestamp.Time; Unsent(w.d, a, now) != LastTime || Unsent(w.d, a, now.Add(LastTime)) != 0 {
				t.Error("the deletion does not wait, or has no limit")
			}
			if test.refuses != 0 {
				w.status = test.refuses
			}
			if got := w.settle(t); !slices.Equal(got, test.want) {
				t.Errorf("%q, want %q", got, test.want)
			}
			if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(w.d), w.d); err != nil || Unsent(w.d, a, w.d.DeletionTimestamp.Time) != 0 {
				t.Errorf("the deletion still waits: %v", err)
			}
		})
	}
}

func TestAProviderThatAsksForAPauseGetsIt(t *testing.T) {
	w := newWorld(t)
	w.status, w.after = http.StatusTooManyRequests, "90"
	for range 2 {
		result, err := w.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.d)})
		if err != nil || result.RequeueAfter < 80*time.Second || result.RequeueAfter > 90*time.Second {
			t.Errorf("%+v, %v", result, err)
		}
	}
	if len(w.received) != 1 {
		t.Errorf("%q", w.received)
	}
}

// A Deployment that a user made, and an Application that does not ask, send nothing.
func TestOthersSendNothing(t *testing.T) {
	for name, change := range map[string]func(*kibashipv1.Application, *kibashipv1.Deployment){
		"not asked for": func(a *kibashipv1.Application, _ *kibashipv1.Deployment) {
			a.Spec.GitRepository.AutoBuild.CommitStatus = false
		},
		"a public repository":   func(a *kibashipv1.Application, _ *kibashipv1.Deployment) { a.Spec.GitRepository.SecretRef = nil },
		"of another owner":      func(_ *kibashipv1.Application, d *kibashipv1.Deployment) { d.OwnerReferences = nil },
		"without a commit":      func(_ *kibashipv1.Application, d *kibashipv1.Deployment) { d.Spec.GitRepository = nil },
		"of no Application":     func(_ *kibashipv1.Application, d *kibashipv1.Deployment) { d.Spec.ApplicationRef.Name = "none" },
		"no autoBuild any more": func(a *kibashipv1.Application, _ *kibashipv1.Deployment) { a.Spec.GitRepository.AutoBuild = nil },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			a := &kibashipv1.Application{}
			if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "project-p-app-web-kibaship-com"}, a); err != nil {
				t.Fatal(err)
			}
			if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(w.d), w.d); err != nil {
				t.Fatal(err)
			}
			change(a, w.d)
			if err := errors.Join(w.client.Update(t.Context(), a), w.client.Update(t.Context(), w.d)); err != nil {
				t.Fatal(err)
			}
			if got := w.settle(t); got != nil {
				t.Errorf("%q", got)
			}
		})
	}
}

// A tenant may write the annotation with the commit before. What is no commit would choose another path of the provider.
func TestAForgedCommitIsNotSent(t *testing.T) {
	w := newWorld(t)
	for _, forged := range []string{"../../../admin/users", "aaa/../../x", "aaa?x=", "%2e%2e", "AAA", ""} {
		if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(w.d), w.d); err != nil {
			t.Fatal(err)
		}
		metav1.SetMetaDataAnnotation(&w.d.ObjectMeta, kibashipv1.AnnotationReported, forged+"="+string(pending))
		if err := w.client.Update(t.Context(), w.d); err != nil {
			t.Fatal(err)
		}
		w.settle(t)
		if len(w.received) != 1 || !strings.HasPrefix(w.received[0], "/api/v1/repos/team/web/statuses/aaa ") {
			t.Errorf("%q: %q", forged, w.received)
		}
	}
}
