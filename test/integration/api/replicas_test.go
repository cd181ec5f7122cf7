package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/bergctf/berg-operator/internal/kit/settings"
	"github.com/bergctf/berg-operator/internal/platform/server"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
)

// tokens of each endpoint, in every test.
var tokensOf = map[string]string{
	"chall-manager": "token-of-ctfd-0123456789", "rctf": "token-of-rctf-0123456789",
	"berg": "token-of-berg-0123456789", "v1": "token-of-v1-0123456789abc",
	"live": "token-of-the-live-page-012",
}

// rehearsal is the token of a second CTFd in the same namespace.
const rehearsal = "token-of-the-rehearsal-01"

// api is the API of one spec: some replicas, and a proxy that takes turns between them.
type api struct {
	namespace string
	replicas  []*replica
	turn      atomic.Int64
	proxy     *httptest.Server
}

// replica is one process of the API.
type replica struct {
	stop context.CancelFunc
	http *httptest.Server
	dead atomic.Bool
	// cut: the API server cannot be reached.
	cut atomic.Bool
}

// cut is a connection to the API server that can be lost.
type cut struct {
	to   http.RoundTripper
	lost *atomic.Bool
}

func (c *cut) RoundTrip(r *http.Request) (*http.Response, error) {
	if c.lost.Load() {
		return nil, errors.New("the network is unreachable")
	}
	return c.to.RoundTrip(r)
}

// account is the user that the API acts as, with the rights of config/berg/api and no other.
const account = "system:serviceaccount:berg-operator-system:berg-api"

// begin starts an API with some replicas for a namespace, until the spec ends.
func begin(ctx context.Context, namespace string, replicas int, env map[string]string) *api {
	GinkgoHelper()
	grant(ctx, namespace)
	a := &api{namespace: namespace}
	for range replicas {
		a.replicas = append(a.replicas, a.start(ctx, env))
	}
	a.proxy = httptest.NewServer(http.HandlerFunc(a.forward))
	DeferCleanup(func() {
		a.proxy.CloseClientConnections()
		a.proxy.Close()
	})
	return a
}

// grant applies the rights of config/berg/api to a namespace, and creates the tokens.
func grant(ctx context.Context, namespace string) {
	GinkgoHelper()
	data, err := os.ReadFile("../../../config/berg/api/rights/rights.yaml")
	Expect(err).NotTo(HaveOccurred())
	for document := range strings.SplitSeq(string(data), "\n---\n") {
		var role rbacv1.Role
		Expect(yaml.Unmarshal([]byte(document), &role)).To(Succeed())
		switch {
		case strings.HasPrefix(role.Kind, "ClusterRole"): // one for all specs
			object := &unstructured.Unstructured{}
			Expect(yaml.Unmarshal([]byte(document), &object.Object)).To(Succeed())
			Expect(k8s.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("integration"), client.ForceOwnership)).To(Succeed())
			continue
		case role.Kind != "Role":
			continue
		case role.Name == "berg-api":
			role.Namespace = namespace
		default: // that of its own Secret, which is in the namespace of the spec, too
			role.Namespace = namespace
		}
		Expect(k8s.Create(ctx, &role)).To(Succeed())
		Expect(k8s.Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: role.Name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: account}},
		})).To(Succeed())
	}
	policy, err := os.ReadFile("../../../config/berg/api/rights/policy.yaml")
	Expect(err).NotTo(HaveOccurred())
	for document := range strings.SplitSeq(string(policy), "\n---\n") {
		object := &unstructured.Unstructured{}
		Expect(yaml.Unmarshal([]byte(document), &object.Object)).To(Succeed())
		Expect(k8s.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("integration"), client.ForceOwnership)).To(Succeed())
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "berg-api-tokens"}, StringData: map[string]string{}}
	for endpoint, token := range tokensOf {
		secret.StringData[endpoint] = "endpoint: " + endpoint + "\ntoken: " + token + "\n"
	}
	secret.StringData["rehearsal"] = "endpoint: chall-manager\ntoken: " + rehearsal + "\n"
	Expect(k8s.Create(ctx, secret)).To(Succeed())
}

func (a *api) start(ctx context.Context, env map[string]string) *replica {
	GinkgoHelper()
	r := &replica{}
	s := a.server(env, &r.cut, GinkgoWriter)
	running, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Follow(running) }()
	r.stop, r.http = stop, httptest.NewServer(s.Handler())
	DeferCleanup(func() {
		r.kill()
		Eventually(ended).Should(Receive(BeNil()))
	})
	Eventually(s.Ready).WithContext(ctx).Should(BeTrue())
	return r
}

// server makes an API that does not run yet. lost cuts its connection to the API server.
func (a *api) server(env map[string]string, lost *atomic.Bool, log io.Writer) *server.Server {
	GinkgoHelper()
	all := map[string]string{
		"PLATFORM_NAMESPACE": a.namespace, "POD_NAMESPACE": a.namespace, "SOURCE_RATE": "1000",
	}
	for name, value := range env {
		all[name] = value
	}
	var config server.Config
	_, err := settings.Load("", []settings.Section{config.Section()}, nil, func(name string) string { return all[name] }, io.Discard)
	Expect(err).NotTo(HaveOccurred())
	rc := rest.CopyConfig(apiserver.Config)
	rc.Impersonate = rest.ImpersonationConfig{UserName: account}
	rc.QPS, rc.Burst = -1, -1
	rc.Wrap(func(to http.RoundTripper) http.RoundTripper { return &cut{to, lost} })
	s, err := server.New(rc, config, clock.RealClock{}, slog.New(slog.NewTextHandler(log, nil)))
	Expect(err).NotTo(HaveOccurred())
	return s
}

// kill ends a replica in the middle of what it does, as kill -9 would: its connections are cut.
func (r *replica) kill() {
	if r.dead.Swap(true) {
		return
	}
	r.http.CloseClientConnections()
	r.stop()
	go r.http.Close()
}

// forward gives a request to the next replica that lives.
func (a *api) forward(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	for range a.replicas {
		to := a.replicas[int(a.turn.Add(1))%len(a.replicas)]
		if to.dead.Load() {
			continue
		}
		out, err := http.NewRequestWithContext(r.Context(), r.Method, to.http.URL+r.URL.RequestURI(), bytes.NewReader(body))
		if err != nil {
			break
		}
		out.Header = r.Header.Clone()
		answer, err := http.DefaultClient.Do(out)
		if err != nil {
			break
		}
		defer answer.Body.Close()
		for name, values := range answer.Header {
			w.Header()[name] = values
		}
		w.WriteHeader(answer.StatusCode)
		_, _ = io.Copy(w, answer.Body)
		return
	}
	w.WriteHeader(http.StatusBadGateway)
}

// stream opens a stream of events, until the spec ends, and returns its lines.
func stream(ctx context.Context, url string, authorise func(*http.Request)) <-chan string {
	GinkgoHelper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	Expect(err).NotTo(HaveOccurred())
	authorise(r)
	opened, err := http.DefaultClient.Do(r) //nolint:bodyclose // the cleanup of the spec closes it
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(opened.Body.Close)
	lines := make(chan string, 1000)
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(opened.Body); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	return lines
}

// answer is what a client reads of an answer.
type answer struct {
	Status int
	Header http.Header
	Body   string
}

// json decodes the body.
func (a answer) json() map[string]any {
	GinkgoHelper()
	var all map[string]any
	Expect(json.Unmarshal([]byte(a.Body), &all)).To(Succeed(), a.Body)
	return all
}

// call sends a request to a URL. with changes it before.
func call(ctx context.Context, method, url, body string, with ...func(*http.Request)) answer {
	GinkgoHelper()
	got, err := try(ctx, method, url, body, with...)
	Expect(err).NotTo(HaveOccurred())
	return got
}

func try(ctx context.Context, method, url, body string, with ...func(*http.Request)) (answer, error) {
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, change := range with {
		change(r)
	}
	client := http.Client{Timeout: 10 * time.Minute}
	got, err := client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer got.Body.Close()
	data, err := io.ReadAll(got.Body)
	return answer{got.StatusCode, got.Header, string(data)}, err
}
