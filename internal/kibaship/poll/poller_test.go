package poll

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kibaship/registry"
)

// answerRefs is an answer of a git server with one branch.
func answerRefs(commit string) string {
	line := commit + " refs/heads/main\n"
	return fmt.Sprintf("%04x%s0000", len(line)+4, line)
}

// world is a Poller with the keys of the Applications whose answers changed.
type world struct {
	*Poller
	changes chan types.NamespacedName
}

func newWorld(t *testing.T, interval time.Duration, objects ...client.Object) world {
	t.Helper()
	t.Cleanup(registry.Exempt(netip.MustParsePrefix("127.0.0.0/8")))
	w := world{
		New(&Providers{Live: fake.NewClientBuilder().WithObjects(objects...).Build(), Config: config.Builds{Providers: map[string]string{"github.com": "https://git.example.org"}}}, interval),
		make(chan types.NamespacedName, 10000),
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Start(ctx) }()
	go func() {
		for {
			select {
			case e := <-w.changed:
				w.changes <- client.ObjectKeyFromObject(e.Object)
			case <-ctx.Done():
				return
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w world) change(t *testing.T) types.NamespacedName {
	t.Helper()
	select {
	case key := <-w.changes:
		return key
	case <-time.After(20 * time.Second):
		t.Fatal("no answer has changed")
		return types.NamespacedName{}
	}
}

func about(name, url string) (types.NamespacedName, Question) {
	return types.NamespacedName{Namespace: "project-p-ns-kibaship-com", Name: name}, Question{
		UID: types.UID(name), Provider: kibashipv1.GitHub, URL: url, User: "x-access-token", Rule: Rule{Branches: []string{"main"}},
	}
}

// A provider that hangs delays no other one.
func TestAProviderThatHangsDelaysNoOther(t *testing.T) {
	hanging := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hanging }))
	defer silent.Close()
	defer close(hanging)
	lively := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(answerRefs(strings.Repeat("a", 40))))
	}))
	defer lively.Close()
	w := newWorld(t, time.Minute)
	for n := range 40 {
		key, q := about(fmt.Sprintf("silent-%d", n), silent.URL)
		q.Provider = kibashipv1.GitLab
		w.Ask(key, q, nil)
	}
	begun := time.Now()
	key, q := about("lively", lively.URL)
	w.Ask(key, q, []string{strings.Repeat("a", 40)})
	if got := w.change(t); got != key {
		t.Errorf("%s has an answer", got)
	}
	if took := time.Since(begun); took > 2*time.Second {
		t.Errorf("an answer took %s", took)
	}
}

// A new token in the Secret counts at the first refusal of the old one, and each token goes to the repository of its Application alone.
func TestTokensAreThoseOfTheirApplications(t *testing.T) {
	var token atomic.Value
	token.Store("first")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, given, _ := r.BasicAuth()
		if strings.HasPrefix(r.URL.Path, "/public") && given != "" {
			t.Errorf("%s got a token", r.URL.Path)
		}
		if strings.HasPrefix(r.URL.Path, "/private") && given != token.Load() {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = w.Write([]byte(answerRefs(strings.Repeat("b", 40))))
	}))
	defer server.Close()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "project-p-ns-kibaship-com", Name: "git"}, Data: map[string][]byte{"token": []byte("first\n")}}
	w := newWorld(t, time.Second, secret)
	built := []string{strings.Repeat("b", 40)}
	private, q := about("private", server.URL+"/private")
	q.Secret = "git"
	w.Ask(private, q, built)
	public, p := about("public", server.URL+"/public")
	w.Ask(public, p, built)
	w.change(t)
	w.change(t)
	if a, ok := w.Ask(private, q, built); !ok || a.Problem != "" || len(a.Refs) != 1 {
		t.Errorf("%+v", a)
	}
	token.Store("second")
	secret.Data["token"] = []byte("second")
	if err := w.providers.Live.(client.Client).Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	<-time.After(spacing + 3*time.Second)
	if a, _ := w.Ask(private, q, built); a.Problem != "" {
		t.Errorf("with a new token: %s", a.Problem)
	}
	token.Store("third")
	w.change(t)
	if a, _ := w.Ask(private, q, built); !strings.Contains(a.Problem, "401") || len(a.Refs) != 1 {
		t.Errorf("with a wrong token: %+v", a)
	}
}

// However many pushes are announced, a repository gets few questions.
func TestManyWebhooksAskOnce(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_, _ = w.Write([]byte(answerRefs(strings.Repeat("c", 40))))
	}))
	defer server.Close()
	w := newWorld(t, 0)
	key, q := about("web", server.URL)
	built := []string{strings.Repeat("c", 40)}
	w.Ask(key, q, built)
	w.change(t)
	for n := range 200 {
		q.Pushed = fmt.Sprint(n)
		w.Ask(key, q, built)
	}
	<-time.After(spacing + 2*time.Second)
	if got := asked.Load(); got != 2 {
		t.Errorf("200 webhooks: %d questions, want the first one and another", got)
	}
}

// An Application that is deleted, and one that names another repository, get no answer about the former one.
func TestForgottenAndChangedQuestions(t *testing.T) {
	wait := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/former") {
			<-wait
		}
		_, _ = w.Write([]byte(answerRefs(strings.Repeat("d", 40))))
	}))
	defer server.Close()
	w := newWorld(t, time.Hour)
	former, q := about("former", server.URL+"/former")
	w.Ask(former, q, nil)
	deleted, d := about("deleted", server.URL+"/former")
	w.Ask(deleted, d, nil)
	<-time.After(200 * time.Millisecond)
	w.Forget(deleted)
	q.URL = server.URL + "/latter"
	if _, known := w.Ask(former, q, []string{strings.Repeat("d", 40)}); known {
		t.Error("another repository has an answer already")
	}
	close(wait)
	if key := w.change(t); key != former {
		t.Errorf("%s has an answer", key)
	}
	if len(w.changes) > 0 {
		t.Error("a forgotten Application has an answer")
	}
}

// A provider that is down gets few questions, for all its Applications together; it is asked again soon when it is back.
func TestAProviderThatIsDownIsAskedLess(t *testing.T) {
	const applications = 100
	var asked atomic.Int32
	var down atomic.Bool
	down.Store(true)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		if down.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte(answerRefs(strings.Repeat("f", 40))))
	}))
	defer server.Close()
	w := newWorld(t, time.Hour)
	built := []string{strings.Repeat("f", 40)}
	for n := range applications {
		key, q := about(fmt.Sprintf("app-%d", n), server.URL)
		w.Ask(key, q, built)
	}
	for range workers {
		w.change(t)
	}
	<-time.After(firstPause / 2)
	if got := asked.Load(); got > 2*workers {
		t.Errorf("%d questions to a provider that is down, want at most %d", got, 2*workers)
	}
	down.Store(false)
	answered := map[types.NamespacedName]bool{}
	for len(answered) < applications {
		key := w.change(t)
		_, q := about(key.Name, server.URL)
		if a, _ := w.Ask(key, q, built); a.Problem == "" {
			answered[key] = true
		}
	}
}

// A message that cannot be read because the provider is down does not have the commit built.
// A provider that asks to be left alone is, for the login alone that it refused; also after webhooks.
func TestAProviderThatAsksForAPauseGetsIt(t *testing.T) {
	var asked, others atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != "" {
			others.Add(1)
			_, _ = w.Write([]byte(answerRefs(strings.Repeat("a", 40))))
			return
		}
		if asked.Add(1) == 1 {
			w.Header().Set("Retry-After", "4")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		_, _ = w.Write([]byte(answerRefs(strings.Repeat("a", 40))))
	}))
	defer server.Close()
	private, q := about("private", server.URL)
	w := newWorld(t, time.Minute, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: private.Namespace, Name: "git"}, Data: map[string][]byte{"token": []byte("t0ken")}})
	key, question := about("web", server.URL)
	begun := time.Now()
	w.Ask(key, question, nil)
	if got := w.change(t); got != key {
		t.Fatalf("%s has an answer", got)
	}
	question.Pushed = "again"
	w.Ask(key, question, nil)
	another, same := about("another", server.URL)
	w.Ask(another, same, []string{strings.Repeat("a", 40)})
	q.Secret = "git"
	w.Ask(private, q, []string{strings.Repeat("a", 40)})
	if got := w.change(t); got != private || asked.Load() != 1 || others.Load() == 0 {
		t.Errorf("%s has an answer after %d questions without a login", got, asked.Load())
	}
	w.change(t)
	if took := time.Since(begun); took < 4*time.Second {
		t.Errorf("asked again after %s", took)
	}
}

func TestAMessageIsReadAgain(t *testing.T) {
	var fetches atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if body, _ := io.ReadAll(q.Body); strings.Contains(string(body), "command=fetch") {
			fetches.Add(1)
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		_, _ = w.Write([]byte(answerRefs(strings.Repeat("a", 40))))
	}))
	defer server.Close()
	w := newWorld(t, time.Hour)
	key, q := about("web", server.URL)
	w.Ask(key, q, nil)
	w.change(t)
	if a, _ := w.Ask(key, q, nil); len(a.Refs) > 0 || !strings.Contains(a.Problem, "502") || fetches.Load() != 1 {
		t.Errorf("after %d attempts to read the message: %+v", fetches.Load(), a)
	}
}

// 1,000 Applications that are asked about each minute take at most 5 % of a core.
func TestAThousandApplicationsCostLittle(t *testing.T) {
	const applications, share = 1000, 0.05
	var asked atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_, _ = w.Write([]byte(answerRefs(strings.Repeat("e", 40))))
	}))
	server.EnableHTTP2 = true
	server.Start()
	defer server.Close()
	w := newWorld(t, time.Hour)
	before := cpuTime(t)
	var all sync.WaitGroup
	for n := range applications {
		key, q := about(fmt.Sprintf("app-%d", n), server.URL)
		w.Ask(key, q, []string{strings.Repeat("e", 40)})
	}
	for range applications {
		all.Go(func() { <-w.changes })
	}
	all.Wait()
	took := cpuTime(t) - before
	t.Logf("%d questions and their answers took %s of CPU time, server included", asked.Load(), took)
	if limit := time.Duration(float64(time.Minute) * share); took > limit {
		t.Errorf("%s of CPU time in a minute, want at most %s", took, limit)
	}
}

func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
