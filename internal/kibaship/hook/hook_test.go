package hook

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha1" // providers send it in addition
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clocktesting "k8s.io/utils/clock/testing"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
)

// The examples that providers publish.
func TestPublishedExamplesOfSignatures(t *testing.T) {
	standard, err := base64.StdEncoding.DecodeString("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		key    key
		header map[string]string
		body   string
		now    int64
	}{
		// https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries
		"GitHub": {key{text: "It's a Secret to Every" + "body"}, map[string]string{
			"X-Hub-Signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
		}, "Hello, World!", 0},
		// https://support.atlassian.com/bitbucket-cloud/docs/manage-webhooks
		"Bitbucket": {key{text: "It's a Secret to Every" + "body"}, map[string]string{
			"X-Hub-Signature": "sha256=a4771c39fbe90f317c7824e83ddef3caae9cb3d976c214ace1f2937e133263c9",
		}, "Hello World!", 0},
		// https://github.com/standard-webhooks/standard-webhooks, which GitLab's signing tokens follow
		"GitLab, signing token": {key{bytes: standard}, map[string]string{
			"Webhook-Id": "msg_p5jXN8AQM9LWM0D4loKWxJek", "Webhook-Timestamp": "1614265330",
			"Webhook-Signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
		}, `{"test": 2432232314}`, 1614265330},
		// RFC 4231, test case 2: Gitea and Forgejo sign like that, without a prefix
		"Gitea":   {key{text: "Jefe"}, map[string]string{"X-Gitea-Signature": "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"}, "what do ya want for nothing?", 0},
		"Forgejo": {key{text: "Jefe"}, map[string]string{"X-Forgejo-Signature": "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"}, "what do ya want for nothing?", 0},
		"GitLab":  {key{text: "a token"}, map[string]string{"X-Gitlab-Token": "a token"}, "{}", 0},
	} {
		t.Run(name, func(t *testing.T) {
			header := http.Header{}
			for key, value := range test.header {
				header.Set(key, value)
			}
			digest, ok, err := test.key.verify(header, strings.NewReader(test.body), time.Unix(test.now, 0))
			if err != nil || !ok || digest != sha256.Sum256([]byte(test.body)) {
				t.Errorf("%v %v", ok, err)
			}
			for name, wrong := range map[string]struct {
				key  key
				body string
				now  int64
			}{
				"another body":    {test.key, test.body + " ", test.now},
				"another secret":  {key{text: test.key.text + "x", bytes: append(slices.Clone(test.key.bytes), 1)}, test.body, test.now},
				"an empty secret": {key{}, test.body, test.now},
				"an old webhook":  {test.key, test.body, test.now + 301},
			} {
				_, ok, _ := wrong.key.verify(header, strings.NewReader(wrong.body), time.Unix(wrong.now, 0))
				token := header.Get("X-Gitlab-Token") != "" && name == "another body" // a token signs no body
				untimed := test.now == 0 && name == "an old webhook"
				if ok != (token || untimed) {
					t.Errorf("%s: %v", name, ok)
				}
			}
		})
	}
}

// Webhooks have the headers and bodies that the providers document, with all signatures that they send.
func TestWebhooksAsProvidersSendThem(t *testing.T) {
	path := NewPath(namespace, application, uid)
	secret := Derive(masterKey, path)
	sign := func(algorithm func() hash.Hash, key []byte, text string) []byte {
		mac := hmac.New(algorithm, key)
		_, _ = io.WriteString(mac, text)
		return mac.Sum(nil)
	}
	const now = "1800000000"
	for name, test := range map[string]struct {
		body    string
		headers func(one, two string) map[string]string
	}{
		// https://docs.github.com/en/webhooks/webhook-events-and-payloads
		"GitHub": {`{"ref":"refs/heads/main","before":"6113728f27ae82c7b1a177c8d03f9e96e0adf246","repository":{"full_name":"team/web"}}`, func(one, two string) map[string]string {
			return map[string]string{
				"X-GitHub-Delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958", "X-GitHub-Event": "push", "X-GitHub-Hook-ID": "292430182",
				"X-Hub-Signature": "sha1=" + one, "X-Hub-Signature-256": "sha256=" + two,
			}
		}},
		// https://docs.gitlab.com/user/project/integrations/webhooks
		"GitLab": {`{"object_kind":"push","event_name":"push","ref":"refs/heads/master","project":{"path_with_namespace":"team/web"}}`, func(string, string) map[string]string {
			return map[string]string{"X-Gitlab-Event": "Push Hook", "X-Gitlab-Token": secret.Text(), "X-Gitlab-Event-UUID": "13792a34-cac6-4fda-95a8-c58e00a3954e"}
		}},
		"GitLab, a tag, with a signing token": {`{"object_kind":"tag_push","ref":"refs/tags/v1.0.0"}`, func(string, string) map[string]string {
			const id, body = "f5e5f430-f57b-4e6e-9fac-d9128cd7232f", `{"object_kind":"tag_push","ref":"refs/tags/v1.0.0"}`
			return map[string]string{
				"X-Gitlab-Event": "Tag Push Hook", "Webhook-Id": id, "Webhook-Timestamp": now,
				"Webhook-Signature": "v1," + base64.StdEncoding.EncodeToString(sign(sha256.New, secret[:], id+"."+now+"."+body)),
			}
		}},
		// https://docs.gitea.com/usage/repository/webhooks
		"Gitea": {`{"ref":"refs/heads/develop","before":"28e1879d029cb852e4844d9c718537df08844e03","repository":{"full_name":"team/web"}}`, func(one, two string) map[string]string {
			return map[string]string{
				"X-GitHub-Delivery": "f6266f16-1bf3-46a5-9ea4-602e06ead473", "X-GitHub-Event": "push", "X-Gogs-Event": "push", "X-Gitea-Event": "push",
				"X-Gogs-Signature": two, "X-Gitea-Signature": two, "X-Hub-Signature": "sha1=" + one, "X-Hub-Signature-256": "sha256=" + two,
			}
		}},
		// https://forgejo.org/docs/latest/user/webhooks
		"Forgejo, a new tag": {`{"ref":"v1.0.0","ref_type":"tag","repository":{"full_name":"team/web"}}`, func(one, two string) map[string]string {
			return map[string]string{
				"X-GitHub-Event": "create", "X-Gitea-Event": "create", "X-Forgejo-Event": "create",
				"X-Forgejo-Signature": two, "X-Gitea-Signature": two, "X-Hub-Signature": "sha1=" + one, "X-Hub-Signature-256": "sha256=" + two,
			}
		}},
		// https://support.atlassian.com/bitbucket-cloud/docs/event-payloads
		"Bitbucket": {`{"actor":{},"repository":{"full_name":"team/web"},"push":{"changes":[{"new":{"type":"branch","name":"main"}}]}}`, func(_, two string) map[string]string {
			return map[string]string{"X-Event-Key": "repo:push", "X-Hook-UUID": "x", "X-Request-UUID": "y", "X-Attempt-Number": "1", "X-Hub-Signature": "sha256=" + two}
		}},
		// https://confluence.atlassian.com/bitbucketserver/event-payload-938025882.html
		"Bitbucket Data Center": {`{"eventKey":"repo:refs_changed","changes":[{"ref":{"id":"refs/heads/master"}}]}`, func(_, two string) map[string]string {
			return map[string]string{"X-Event-Key": "repo:refs_changed", "X-Request-Id": "x", "X-Hub-Signature": "sha256=" + two}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r, fake := newReceiver(t)
			for body, want := range map[string]int{test.body: http.StatusAccepted, test.body + " ": http.StatusUnauthorized} {
				q := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
				q.Header.Set("Content-Type", "application/json")
				signatures := test.headers(hex.EncodeToString(sign(sha1.New, []byte(secret.Text()), test.body)), hex.EncodeToString(sign(sha256.New, []byte(secret.Text()), test.body)))
				for header, value := range signatures {
					q.Header.Set(header, value)
				}
				if name == "GitLab" { // its token signs no body
					want = http.StatusAccepted
				}
				if w := send(r, q); w.Code != want {
					t.Errorf("%d %s, want %d", w.Code, w.Body, want)
				}
			}
			if len(fake.Actions()) == 0 {
				t.Error("no Application got the annotation")
			}
		})
	}
}

// The first signature decides.
func TestAWrongSignatureIsNotRescued(t *testing.T) {
	k := key{text: "Jefe"}
	right := "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
	header := http.Header{"X-Hub-Signature-256": {"sha256=" + strings.Repeat("0", 64)}, "X-Gitea-Signature": {right}, "X-Gitlab-Token": {"Jefe"}}
	if _, ok, _ := k.verify(header, strings.NewReader("what do ya want for nothing?"), time.Now()); ok {
		t.Error("a wrong signature was accepted")
	}
	header = http.Header{"X-Hub-Signature": {"sha1=" + strings.Repeat("0", 40)}}
	if _, ok, _ := k.verify(header, strings.NewReader(""), time.Now()); ok {
		t.Error("a signature with SHA-1 was accepted")
	}
}

const application, uid = "project-p-app-web-kibaship-com", "6e8ddb5c-8a4c-4f3d-9d5e-6c1d2d8f8f11"

const namespace = "project-p-ns-kibaship-com"

var masterKey = bytes.Repeat([]byte{7}, 32)

// newReceiver returns a receiver and the client by which it writes.
func newReceiver(t *testing.T) (*Receiver, *dynamicfake.FakeDynamicClient) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, masterKey, 0o600); err != nil {
		t.Fatal(err)
	}
	app := &unstructured.Unstructured{}
	app.SetGroupVersionKind(kibashipv1.GroupVersion.WithKind("Application"))
	app.SetNamespace(namespace)
	app.SetName(application)
	app.SetUID(uid)
	fake := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme(), app)
	return &Receiver{KeyFile: file, Client: fake, Clock: clocktesting.NewFakePassiveClock(time.Unix(1800000000, 0)), Log: slog.New(slog.DiscardHandler)}, fake
}

// push is a webhook of GitHub with a right signature.
func push(path, body string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	mac := hmac.New(sha256.New, []byte(Derive(masterKey, path).Text()))
	_, _ = io.WriteString(mac, body)
	r.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	r.Header.Set("X-GitHub-Event", "push")
	return r
}

func send(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestARightWebhookWritesAnAnnotation(t *testing.T) {
	r, fake := newReceiver(t)
	path := NewPath(namespace, application, uid)
	if w := send(r, push(path, "{}")); w.Code != http.StatusAccepted {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	app, err := fake.Resource(kibashipv1.GroupVersion.WithResource("applications")).Namespace(namespace).Get(t.Context(), application, metav1.GetOptions{})
	sum := sha256.Sum256([]byte("{}"))
	if err != nil || app.GetAnnotations()[kibashipv1.AnnotationPushed] != hex.EncodeToString(sum[:8]) {
		t.Errorf("%v %v", app.GetAnnotations(), err)
	}
	if w := send(r, push(NewPath(namespace, "project-p-app-gone-kibaship-com", uid), "{}")); w.Code != http.StatusGone {
		t.Errorf("a deleted Application: %d", w.Code)
	}
	ping := push(path, "{}")
	ping.Header.Set("X-GitHub-Event", "ping")
	if w := send(r, ping); w.Code != http.StatusOK {
		t.Errorf("a ping: %d", w.Code)
	}
	// No loop: the providers announce the states of builds, which the operator sends them, by events that are no pushes.
	before := len(fake.Actions())
	for header, names := range map[string][]string{
		"X-Github-Event": {"status", "check_run", "workflow_run", "pull_request"}, "X-Gitea-Event": {"status", "pull_request"},
		"X-Gitlab-Event": {"Pipeline Hook", "Job Hook", "Merge Request Hook"}, "X-Event-Key": {"repo:commit_status_created", "repo:fork", "pullrequest:created"},
	} {
		for _, name := range names {
			q := push(path, "{}")
			q.Header.Del("X-Github-Event")
			q.Header.Set(header, name)
			if w := send(r, q); w.Code != http.StatusOK {
				t.Errorf("%s: %d", name, w.Code)
			}
		}
	}
	if len(fake.Actions()) != before {
		t.Error("an event that is no push was written")
	}
	// A route may leave its own path before it.
	prefixed := push(path, "{}")
	prefixed.URL.Path = "/hooks" + path
	if w := send(r, prefixed); w.Code != http.StatusAccepted {
		t.Errorf("with a prefix: %d", w.Code)
	}
}

// A request without the right signature reaches nothing, and its answer says nothing.
func TestForgedWebhooksGetOneAnswer(t *testing.T) {
	r, fake := newReceiver(t)
	path := NewPath(namespace, application, uid)
	want := send(r, httptest.NewRequest(http.MethodPost, path, nil))
	if want.Code != http.StatusUnauthorized {
		t.Fatalf("%d", want.Code)
	}
	forge := func(path string, change func(*http.Request)) *http.Request {
		q := push(path, "{}")
		change(q)
		return q
	}
	for name, q := range map[string]*http.Request{
		"another signature":      forge(path, func(q *http.Request) { q.Header.Set("X-Hub-Signature-256", "sha256="+strings.Repeat("a", 64)) }),
		"another body":           forge(path, func(q *http.Request) { q.Body = io.NopCloser(strings.NewReader("[]")) }),
		"no signature":           forge(path, func(q *http.Request) { q.Header.Del("X-Hub-Signature-256") }),
		"of another Application": forge(path, func(q *http.Request) { q.URL.Path = NewPath(namespace, "project-p-app-other-kibaship-com", uid) }),
		"an unknown Application": httptest.NewRequest(http.MethodPost, NewPath("x", "y", "z"), nil),
		"no path":                httptest.NewRequest(http.MethodPost, "/", nil),
		"another method":         forge(path, func(q *http.Request) { q.Method = http.MethodGet }),
		"a wrong token":          forge(path, func(q *http.Request) { q.Header = http.Header{"X-Gitlab-Token": {"x"}} }),
	} {
		got := send(r, q)
		if got.Code != want.Code || got.Body.String() != want.Body.String() {
			t.Errorf("%s: %d %s", name, got.Code, got.Body)
		}
	}
	if len(fake.Actions()) > 0 {
		t.Errorf("the API server got %d requests", len(fake.Actions()))
	}
}

// A body of any size costs no memory, and more than the limit is refused.
func TestLargeBodiesAreRefused(t *testing.T) {
	r, fake := newReceiver(t)
	path := NewPath(namespace, application, uid)
	for _, length := range []int64{maxBody + 1, -1} {
		q := push(path, "")
		q.Body, q.ContentLength = io.NopCloser(io.LimitReader(zeros{}, maxBody+1)), length
		if w := send(r, q); w.Code != http.StatusRequestEntityTooLarge {
			t.Errorf("a length of %d: %d", length, w.Code)
		}
	}
	if len(fake.Actions()) > 0 {
		t.Error("the API server got a request")
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// An Application that gets many webhooks has the API server written to at a bounded rate, and delays no other one.
func TestWebhooksOfAnApplicationAreLimited(t *testing.T) {
	r, fake := newReceiver(t)
	path := NewPath(namespace, application, uid)
	limited := 0
	for n := range 200 {
		if send(r, push(path, fmt.Sprintf("{%d}", n))).Code == http.StatusTooManyRequests {
			limited++
		}
	}
	if limited != 200-pushBurst || len(fake.Actions()) != pushBurst {
		t.Errorf("%d of 200 were refused, and %d written", limited, len(fake.Actions()))
	}
	// Repeated ones take nothing from those that are new.
	r, fake = newReceiver(t)
	for range 200 {
		send(r, push(path, "{}"))
	}
	if w := send(r, push(path, "{1}")); w.Code != http.StatusAccepted || len(fake.Actions()) != 3 {
		t.Errorf("after 200 repeated webhooks: %d, and %d written, want the first one, a repeated one and a new one", w.Code, len(fake.Actions()))
	}
	if w := send(r, push(NewPath(namespace, "project-p-app-other-kibaship-com", uid), "{}")); w.Code != http.StatusGone {
		t.Errorf("another Application: %d", w.Code)
	}
}
